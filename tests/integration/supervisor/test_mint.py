"""RecipeID numbers: never twice, over restarts, processes, and while cut off."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from bakemesh.bus.kv import Bucket
from bakemesh.protocol import storage
from bakemesh.supervisor import MintExhausted, StateDamaged
from bakemesh.supervisor.mint import CounterMint, FolderMint, Mint
from bakemesh.supervisor.reserve import Reserve
from support.nats import connect, hub_and_leaf, server
from support.waiting import eventually

MINTER = """
import asyncio, pathlib, sys
from bakemesh.bus import Bus, BusSettings
from bakemesh.supervisor.mint import CounterMint, FolderMint

async def main(url, state, count):
    async with await Bus.connect(BusSettings(servers=(url,), name="nightly")) as bus:
        folder = pathlib.Path(state)
        mint = FolderMint(bus, "nightly", folder) if state else CounterMint(bus, "nightly")
        print(*[await mint.next() for _ in range(count)])

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


async def numbers(mint: Mint, count: int) -> list[int]:
    return [await mint.next() for _ in range(count)]


async def test_the_counter_is_ascii_decimal_under_the_supervisors_name(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        bucket = Bucket(bus, storage.ids_bucket(bus.mesh))
        await bucket.ensure()
        await bucket.put("nightly", b"41")
        assert await CounterMint(bus, "nightly").next() == 42
        entry = await bucket.get("nightly")
        assert entry is not None
        assert entry.value == b"42"
        assert await CounterMint(bus, "other").next() == 1


async def test_one_after_the_other_never_repeats(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await Bucket(bus, storage.ids_bucket(bus.mesh)).ensure()
        first = await numbers(CounterMint(bus, "nightly"), 200)
        second = await numbers(CounterMint(bus, "nightly"), 200)
        assert first == sorted(first)
        assert second[0] > first[-1]


async def test_side_by_side_in_one_process_never_repeats(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await Bucket(bus, storage.ids_bucket(bus.mesh)).ensure()
        shared = CounterMint(bus, "nightly")
        mints: list[Mint] = [
            shared,
            shared,
            CounterMint(bus, "nightly"),
            FolderMint(bus, "nightly", tmp_path),
        ]
        several = await asyncio.gather(*(numbers(mint, 300) for mint in mints))
        everything = [number for some in several for number in some]
        assert len(set(everything)) == len(everything) == 1200


@pytest.mark.parametrize("with_state", [False, True])
async def test_processes_that_mint_at_once_never_collide(tmp_path: Path, with_state: bool) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await Bucket(bus, storage.ids_bucket(bus.mesh)).ensure()
        state = str(tmp_path / "state") if with_state else ""
        running = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", MINTER, nats.url, state, "700", stdout=asyncio.subprocess.PIPE
            )
            for _ in range(3)
        ]
        outputs = [(await process.communicate())[0] for process in running]
        assert [process.returncode for process in running] == [0, 0, 0]
        everything = [int(word) for output in outputs for word in output.split()]
        assert len(set(everything)) == len(everything) == 2100


async def test_a_counter_that_is_no_number_is_told(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        bucket = Bucket(bus, storage.ids_bucket(bus.mesh))
        await bucket.ensure()
        await bucket.put("nightly", b"many")
        with pytest.raises(StateDamaged, match="'many'"):
            await CounterMint(bus, "nightly").next()


async def test_without_a_bucket_it_says_that_no_builder_ever_ran(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        with pytest.raises(MintExhausted, match="no Builder"):
            await CounterMint(bus, "nightly").next()


async def test_a_state_folder_mints_on_while_cut_off_and_after_a_restart(tmp_path: Path) -> None:
    async with hub_and_leaf(tmp_path) as pair:
        async with connect(pair.hub.url) as hub:
            await Bucket(hub, storage.ids_bucket(hub.mesh)).ensure()
        async with connect(pair.leaf.url, node_id="edge") as bus:
            mint = FolderMint(bus, "nightly", tmp_path / "state")
            before = await numbers(mint, 10)
            await pair.cut()
            apart = await numbers(mint, 300)
            restarted = await numbers(FolderMint(bus, "nightly", tmp_path / "state"), 300)
            with pytest.raises(MintExhausted, match="out of reach"):
                await CounterMint(bus, "nightly").next()
            await pair.heal()
            after = await numbers(FolderMint(bus, "nightly", tmp_path / "state"), 500)
            everything = before + apart + restarted + after
            assert len(set(everything)) == len(everything)


async def test_a_reserve_that_is_used_up_while_cut_off_says_so(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await Bucket(bus, storage.ids_bucket(bus.mesh)).ensure()
        mint = FolderMint(bus, "nightly", tmp_path / "state", block=8)
        await mint.next()
        await nats.kill()
        await eventually(lambda: not bus.connected)
        assert await numbers(mint, 7) == [2, 3, 4, 5, 6, 7, 8]
        with pytest.raises(MintExhausted, match="counter"):
            await mint.next()


def test_a_block_is_reserved_whole_and_taken_in_pieces(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, "psyclone", "nightly")
    assert reserve.take(4) == (None, 0)
    reserve.add(1, 10)
    reserve.add(101, 5)
    assert reserve.take(4) == ((1, 4), 11)
    again = Reserve(tmp_path, "psyclone", "nightly")
    assert again.take(64) == ((5, 6), 5)
    assert again.take(64) == ((101, 5), 0)
    assert again.take(1) == (None, 0)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"ranges": 7}', '{"ranges": [[5, 5]]}', '{"ranges": [[0, 5]]}']
)
def test_a_damaged_reserve_is_an_error_never_a_fresh_start(tmp_path: Path, text: str) -> None:
    reserve = Reserve(tmp_path, "psyclone", "nightly")
    reserve.add(1, 10)
    file = tmp_path / "ids" / "psyclone.nightly.json"
    assert json.loads(file.read_text()) == {"ranges": [[1, 11]]}
    file.write_text(text)
    with pytest.raises(StateDamaged, match=r"psyclone\.nightly\.json"):
        reserve.take(1)
