"""Nonces that rise, lanes that are shared, text that is not cut within a character."""

from __future__ import annotations

import asyncio
import itertools

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.dendrite.lanes import Lanes
from bakemesh.dendrite.nonces import Nonces
from bakemesh.dendrite.streaming import cut


@given(clock=st.lists(st.integers(min_value=1, max_value=1000), min_size=1))
def test_nonces_rise_also_when_the_clock_is_set_back(clock: list[int]) -> None:
    times = iter(clock)
    nonces = Nonces(lambda: next(times))
    found = [nonces.next() for _ in clock]

    assert found == sorted(set(found))
    assert all(nonce >= time for nonce, time in zip(found, clock, strict=True))


@given(text=st.text(), data=st.data())
def test_text_in_pieces_is_cut_between_characters(text: str, data: st.DataObject) -> None:
    raw = text.encode("utf-8", "replace")
    at = sorted(data.draw(st.lists(st.integers(min_value=0, max_value=len(raw)), max_size=6)))
    whole, rest = "", b""
    for start, end in itertools.pairwise([0, *at, len(raw)]):
        piece, rest = cut(rest + raw[start:end])
        whole += piece.decode()
        assert len(rest) < 4

    assert (whole, rest) == (raw.decode(), b"")


@given(raw=st.binary())
def test_what_is_no_text_is_cut_without_loss(raw: bytes) -> None:
    piece, rest = cut(raw)

    assert piece + rest == raw
    assert len(rest) < 4


async def test_a_lane_has_one_user_and_is_used_again() -> None:
    lanes = Lanes(2)
    inside: set[str] = set()
    seen: list[str] = []
    most = 0

    async def use() -> None:
        nonlocal most
        async with lanes.one() as lane:
            assert lane not in inside
            inside.add(lane)
            seen.append(lane)
            most = max(most, len(inside))
            await asyncio.sleep(0)
            inside.remove(lane)

    await asyncio.gather(*(use() for _ in range(20)))

    assert most == 2
    assert len(seen) == 20
    assert len(set(seen)) == 2


async def test_one_caller_after_the_other_stays_on_one_lane() -> None:
    lanes = Lanes(64)
    found = []
    for _ in range(5):
        async with lanes.one() as lane:
            found.append(lane)

    assert len(set(found)) == 1


async def test_a_caller_that_is_cancelled_gives_its_lane_back() -> None:
    lanes = Lanes(1)
    entered = asyncio.Event()

    async def hold() -> None:
        async with lanes.one():
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await entered.wait()
    task.cancel()
    await asyncio.wait([task])

    async with asyncio.timeout(5), lanes.one() as lane:
        assert lane
