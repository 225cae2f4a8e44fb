"""Whom a Result is about: the identity entries as far as they are known, and never more than names.

What a stranger wrote is not sent back as it came: an entry that can be no name is left out, so that an answer
is never larger than a few hundred bytes whatever was asked.
"""

from __future__ import annotations

from typing import Any

from bakemesh.protocol import names
from bakemesh.protocol.identity import ENTRIES, Identity


def known(identity: Identity) -> dict[str, Any]:
    """Those of the five that can be names, as keyword arguments of a Result."""
    fields = identity.fields().items()
    return {
        field: value
        for (field, value), entry in zip(fields, ENTRIES, strict=True)
        if names.is_valid(entry, value)
    }
