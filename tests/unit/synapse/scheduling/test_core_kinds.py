"""The core's rerankings and generations, in virtual time."""

from __future__ import annotations

import asyncio
import random
from array import array

import pytest

from bakemesh.protocol.inference.errors import ErrorObject
from bakemesh.synapse.scheduling.core import Core
from bakemesh.workerpool.models import Sampling, Text, Token
from support.corecalls import ask, code, nothing_is_left, outcome, text
from support.scriptedlanes import CRASH, ScriptedLanes, model, packed
from support.virtual import virtually


def test_reranking_gives_each_candidate_its_score_however_it_is_cut():
    async def main():
        lanes = ScriptedLanes(2)
        core = Core(lanes)
        key = core.know(model())
        documents = [[n] * (n % 30 + 1) for n in range(1, 400)]
        counts, ids = packed(documents)
        _, query = packed([[3, 4, 5]])
        scores = await core.rerank(key, query, counts, ids, ask())
        assert array("f", bytes(scores)).tolist() == [12 + sum(each) for each in documents]
        assert max(step.tokens for step in lanes.runs()) <= 512
        nothing_is_left(core)

    virtually(main())


def test_a_stream_is_handed_through_and_ends_with_its_text_when_it_is_taken_back():
    async def main():
        core = Core(ScriptedLanes(1, token_s=0.1))
        key = core.know(model())
        prompt = packed([[5, 6, 7]])[1]
        parts = [part async for part in core.generate(key, prompt, 9, Sampling(seed=1), ask())]
        assert parts == [Token(0, "5 "), Token(1, "6 "), Token(2, "7 "), Text("5 6 7 ", 3, 3, "stop")]
        whole = [part async for part in core.generate(key, prompt, 2, None, ask(), stream=False)]
        assert whole == [Text("5 6 ", 3, 2, "stop")]
        wishes = ask()
        found = []
        async for part in core.generate(key, packed([[1] * 50])[1], 50, None, wishes):
            found.append(part)
            if len(found) == 3:
                wishes.cancel()
        assert found[-1] == Text("1 1 1 ", 50, 3, "cancelled")
        assert core._estimates.pace(key.id, "generate").runs == 2  # it says nothing of how long texts take
        assert code(await outcome(text(core, key, packed([[1] * 50])[1], ask(6)))) == "deadline_exceeded"
        await asyncio.sleep(1)
        assert core.status().busy == 0
        nothing_is_left(core)

    virtually(main())


@pytest.mark.parametrize(("stage", "code_", "runs"), [("generate", "ok", 2), ("token", "engine_crashed", 1)])
def test_a_generation_is_repeated_only_before_its_first_token(stage, code_, runs):
    async def main():
        said = iter([CRASH])
        lanes = ScriptedLanes(2, mishap=lambda step: next(said, None) if step.stage == stage else None)
        core = Core(lanes)
        key = core.know(model())

        async def all_parts():
            return [part async for part in core.generate(key, packed([[5, 6]])[1], 9, Sampling(), ask())]

        found = await outcome(all_parts())
        assert code(found) == code_
        assert len(lanes.runs()) == runs
        if isinstance(found, ErrorObject):
            assert not found.safe_to_retry
        nothing_is_left(core)

    virtually(main())


def test_options_that_no_lane_can_honour_are_refused():
    async def main():
        lanes = ScriptedLanes(1)
        lanes.put("l0", types=())
        core = Core(lanes)
        key = core.know(model())

        async def parts(sampling):
            return [part async for part in core.generate(key, packed([[5, 6]])[1], 9, sampling, ask())]

        assert code(await outcome(parts(Sampling(seed=1)))) == "capability_absent"
        assert await parts(None) == [Text("5 6 ", 2, 2, "stop")]

    virtually(main())


def test_a_chat_s_next_turn_goes_to_the_lane_that_read_its_last_one():
    async def main():
        lanes = ScriptedLanes(3, load_s=0.01)
        core = Core(lanes)
        key = core.know(model())
        for lane in lanes.lanes:
            lanes.put(lane, loaded={key})
        chats = [[n] * 40 for n in (1, 2, 3)]

        async def turn(chat):
            _, prompt = packed([chat])
            async for _ in core.generate(key, prompt, 5, None, ask()):
                pass

        await asyncio.gather(*map(turn, chats))
        assert len({step.lane for step in lanes.runs()}) == 3
        first = [step.lane for step in lanes.runs()]
        chance = random.Random(2)
        for _ in range(12):
            which = chance.randrange(3)
            chats[which] = chats[which] + [9, which + 1]
            await turn(chats[which])
            assert lanes.runs()[-1].lane == first[which]

    virtually(main())
