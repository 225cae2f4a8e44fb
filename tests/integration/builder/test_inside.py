"""Faults inside the Builder: whoever waits is told, and nothing is lost by the way it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bakemesh.builder import judge
from bakemesh.builder.retention import Retention
from bakemesh.protocol.builder.messages import BakeCancelled
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import Supervisor
from support.house import said
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


async def test_a_part_that_fails_ends_the_builder_as_a_stop_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may run again is left to the next start; it is not taken for a step that has failed."""
    go = asyncio.Event()

    async def fails(self: Retention) -> None:
        await go.wait()
        raise RuntimeError("a part fails")

    async with server(tmp_path) as nats, Supervisor.connect(nats=nats.url, name="boss") as boss:
        with monkeypatch.context() as patched:
            patched.setattr(Retention, "run", fails)
            async with builder_inside(tmp_path, nats.url) as inside:
                again = await boss.bake(
                    '<recipe name="again"><cli retryable="yes" command="sleep 600"/></recipe>', node="alpha"
                )
                once = await boss.bake(
                    '<recipe name="once"><cli command="sleep 600"/></recipe>', node="alpha"
                )
                for bake in (again, once):
                    await said(bake, lambda status: status.kind == "step")
                go.set()
                with pytest.raises(RuntimeError, match="a part fails"):
                    await asyncio.wait_for(asyncio.shield(inside.task), 20)
        end = await once.outcome()
        assert (end.outcome, end.code) == ("failed", "builder_restarted")
        async with builder_inside(tmp_path, nats.url):
            await said(again, lambda status: status.attempt == 2)
            assert (await again.cancel()).accepted
            assert isinstance(await again.outcome(), BakeCancelled)
