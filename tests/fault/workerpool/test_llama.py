"""What llama.cpp itself can do to a pool: abort, be killed by its mapping, run out of memory, run too long.

The fake engine drives every path (test_faults); here the engine is the real one and the files are real GGUFs.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from bakemesh.workerpool import (
    Artifact,
    ArtifactInvalid,
    EngineCrashed,
    LoadOutOfMemory,
    ModelQuarantined,
    Share,
    deadlines,
)
from bakemesh.workerpool.errors import OutOfMemory
from bakemesh.workerpool.settings import OUR_WORKER
from support import models
from support.engine import limited, memory_kib, need_engine
from support.processes import gone
from support.waiting import eventually
from support.workerpools import World, gguf, ids, pools, share

pytestmark = pytest.mark.engine
CAT = share(models.words("the cat"))
FOREVER = models.characters("0")
LONG = ids(*[FOREVER[1]] * 60_000)  # a prompt that llama.cpp reads for many seconds, in C


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """All of this needs llama.cpp."""
    need_engine()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models."""
    made = tmp_path_factory.mktemp("models")
    models.bert(made / "mean.gguf")
    models.twice_the_same_word(made / "aborts.gguf")
    models.alphabet(made / "alphabet.gguf")
    models.alphabet(made / "long.gguf", context=65_536)
    return made


async def embeds(world: World, folder: Path) -> bytes:
    """A sound model answers; its vector."""
    sound = await world.pool.load(gguf(folder / "mean.gguf"), {})
    vectors = await world.pool.embed(sound.key, CAT)
    assert (vectors.n, vectors.dims) == (1, 64)
    return bytes(vectors.data)


async def test_an_assert_at_load_is_told_in_its_words_and_quarantines_that_model_alone(tmp_path, folder):
    async with pools(tmp_path, OUR_WORKER, redispatch=False) as world:
        before, aborts = await embeds(world, folder), gguf(folder / "aborts.gguf")
        for _ in range(3):
            with pytest.raises(EngineCrashed) as caught:
                await world.pool.load(aborts, {})
            assert (caught.value.stage, caught.value.signal) == ("load", signal.SIGABRT)
            assert "[stderr] " in caught.value.output
            assert "GGML_ASSERT" in caught.value.output
            assert await embeds(world, folder) == before
        starts = world.pool.health().lanes[0].starts
        assert starts == 4
        with pytest.raises(ModelQuarantined):
            await world.pool.load(aborts, {})
        assert await embeds(world, folder) == before
        assert world.pool.health().lanes[0].starts == starts


async def test_a_request_whose_model_aborts_at_its_load_is_run_on_both_workers_and_then_told(
    tmp_path, folder
):
    async with pools(tmp_path, OUR_WORKER, workers=2) as world:
        key = world.pool.know(gguf(folder / "aborts.gguf"), {})
        with pytest.raises(EngineCrashed) as caught:
            await world.pool.embed(key, CAT)
        assert (caught.value.stage, caught.value.signal) == ("load", signal.SIGABRT)
        lanes = world.pool.health().lanes
        assert all("SIGABRT" in str(lane.last_crash) for lane in lanes)
        assert await embeds(world, folder)


async def test_a_mapped_file_that_is_cut_is_a_crash_of_its_request_and_then_no_model(tmp_path, folder):
    path = tmp_path / "cut.gguf"
    path.write_bytes((folder / "mean.gguf").read_bytes())
    async with pools(tmp_path, OUR_WORKER, redispatch=False) as world:
        mapped = await world.pool.load(gguf(path), {})
        os.truncate(path, 4096)
        with pytest.raises(EngineCrashed) as caught:
            await world.pool.embed(mapped.key, CAT)
        assert (caught.value.stage, caught.value.signal) == ("embed", signal.SIGBUS)
        with pytest.raises(ArtifactInvalid, match="digest"):
            await world.pool.embed(mapped.key, share(models.words("dog")))
        assert await embeds(world, folder)
        assert world.pool.health().lanes[0].starts == 2


async def test_files_that_are_no_sound_model_are_refused_and_the_worker_lives(tmp_path, folder):
    async with pools(tmp_path, OUR_WORKER) as world:
        before, pid = await embeds(world, folder), world.pid()
        for number, (kind, make) in enumerate(models.FAULTY.items()):
            faulty = gguf(make(tmp_path / f"faulty-{number}.gguf"))
            for _ in range(4):  # more than would quarantine it
                with pytest.raises(ArtifactInvalid):
                    await world.pool.load(faulty, {})
                assert world.pid() == pid, kind
        sound = gguf(folder / "mean.gguf")
        for digest in ("sha256:" + "0" * 64, gguf(folder / "alphabet.gguf").digest, "sha256:none"):
            with pytest.raises(ArtifactInvalid, match="digest"):
                await world.pool.load(Artifact(path=sound.path, digest=digest), {})
        assert await embeds(world, folder) == before
        health = world.pool.health()
        assert (health.state, health.lanes[0].pid, health.lanes[0].starts) == ("ok", pid, 1)


async def test_no_memory_for_a_model_or_a_context_is_oom_and_the_worker_lives(tmp_path, folder):
    async with pools(tmp_path, OUR_WORKER, env={"MALLOC_ARENA_MAX": "1"}) as world:
        await world.pool.load(gguf(folder / "alphabet.gguf"), {})
        most = memory_kib(world.pid(), "VmSize") + 150 * 1024
    large = gguf(models.alphabet(tmp_path / "large.gguf", feed=300 * 256))
    wide = gguf(models.alphabet(tmp_path / "wide.gguf", context=500_000_000))
    async with pools(tmp_path, limited(most)) as world:
        pid = world.pid()
        for _ in range(4):
            with pytest.raises(LoadOutOfMemory) as caught:
                await world.pool.load(large, {})
            assert (caught.value.code, caught.value.kind) == ("oom", "transient")
        loaded = await world.pool.load(wide, {"ctx_size": "0"})
        with pytest.raises(OutOfMemory):
            await world.pool.generate(loaded.key, ids(*FOREVER), 5)
        await world.pool.unload(loaded.key)
        chain = await world.pool.load(gguf(folder / "alphabet.gguf"), {})
        assert (await world.pool.generate(chain.key, ids(*FOREVER), 5)).text == "12345"
        assert (world.pid(), world.pool.health().state) == (pid, "ok")


async def test_a_worker_in_the_midst_of_c_is_killed_at_its_deadline_and_the_next_one_serves(tmp_path, folder):
    short = deadlines.Rules(generation_s=0.5)
    async with pools(tmp_path, OUR_WORKER, deadlines=short) as world:
        long, pid = await world.pool.load(gguf(folder / "long.gguf"), {"ctx_size": "0"}), world.pid()
        with pytest.raises(EngineCrashed) as caught:
            await world.pool.generate(long.key, LONG, 5)
        told = caught.value
        assert (told.stage, told.during, told.signal) == ("timeout", "generate", signal.SIGKILL)
        assert gone(pid)
        assert await embeds(world, folder)


async def test_a_caller_who_leaves_in_the_midst_of_c_kills_nobody_and_the_engine_ends_it(tmp_path, folder):
    async with pools(tmp_path, OUR_WORKER) as world:
        await embeds(world, folder)
        long, pid = await world.pool.load(gguf(folder / "long.gguf"), {"ctx_size": "0"}), world.pid()
        running = asyncio.ensure_future(world.pool.generate(long.key, LONG, 5))
        await eventually(lambda: world.pool.health().lanes[0].busy_s)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await embeds(world, folder)
        assert world.pid() == pid  # killed 2 s after the CANCEL, had the engine not ended it


async def test_ids_and_lengths_that_would_abort_never_reach_the_engine(tmp_path, folder):
    async with pools(tmp_path, OUR_WORKER) as world:
        before, pid = await embeds(world, folder), world.pid()
        key = (await world.pool.load(gguf(folder / "mean.gguf"), {})).key
        chain = (await world.pool.load(gguf(folder / "alphabet.gguf"), {})).key
        words = len(models.WORDS)
        wrong = [
            world.pool.embed(key, share([2, words])),
            world.pool.embed(key, share([-1])),
            world.pool.embed(key, share([7] * 129)),
            world.pool.embed(key, Share([1] * 257, ids(*[7] * 257))),
            world.pool.generate(chain, ids(len(models.CHARACTERS)), 1),
            world.pool.generate(chain, ids(*[5] * 2049), 1),
        ]
        for each in await asyncio.gather(*wrong, return_exceptions=True):
            assert getattr(each, "code", None) == "bad_request", each
        assert await embeds(world, folder) == before
        assert world.pid() == pid
