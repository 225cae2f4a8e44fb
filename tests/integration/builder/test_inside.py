"""Faults inside the Builder: whoever waits is told, and nothing is lost by the way it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from bakemesh.builder import judge
from bakemesh.protocol.identity import Identity
from support.inside import builder_inside
from support.letters import inbox_subject, recipe_letter, send
from support.nats import connect, server

GOOD = '<recipe name="good"><cli command="true"/></recipe>'


async def test_a_message_that_breaks_the_builders_own_code_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is dropped, for it must not come again for ever; and its sender does not wait for ever."""
    real = judge.judge

    def breaks(subject, envelope, facts):  # type: ignore[no-untyped-def]
        if envelope.entries["RecipeID"] == "writer-good-1":
            raise RuntimeError("some fault")
        return real(subject, envelope, facts)

    monkeypatch.setattr(judge, "judge", breaks)
    async with (
        server(tmp_path) as nats,
        builder_inside(tmp_path, nats.url),
        connect(nats.url, name="writer") as bus,
    ):
        bad = Identity("writer", "good", "writer-good-1", "alpha", "alpha")
        result = await send(bus, inbox_subject(bus, bad), recipe_letter(bad, GOOD))
        assert (result.accepted, result.code, result.verb) == (False, "malformed_message", "Recipe")
        assert "RuntimeError" in result.summary
        assert "some fault" not in result.summary, "what it was about stays in the Builder's log"
        good = Identity("writer", "good", "writer-good-2", "alpha", "alpha")
        assert (await send(bus, inbox_subject(bus, good), recipe_letter(good, GOOD))).accepted
