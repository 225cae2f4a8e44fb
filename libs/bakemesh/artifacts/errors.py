"""What is wrong with an artifact. All else that can happen here is an OSError."""

from __future__ import annotations


class ArtifactBroken(Exception):
    """Raised when a file is not what its digest or size says, or changed while it was read."""
