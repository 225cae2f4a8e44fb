"""Every fault of the protocol's table, in a request: one typed answer, and another worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import pytest

from bakemesh.workerpool import (
    Artifact,
    ArtifactInvalid,
    BadRequest,
    Call,
    CapabilityAbsent,
    ConfigInvalid,
    DeadlineExceeded,
    EngineCrashed,
    LoadOutOfMemory,
    ModelQuarantined,
    ModelUnknown,
    RequestPoisoned,
    Token,
    WorkerUnavailable,
    budget,
    deadlines,
    key_of,
)
from bakemesh.workerpool.errors import OutOfMemory
from support.processes import gone
from support.waiting import eventually
from support.workerpools import floats, ids, named, pools, scripted, share

SHORT = deadlines.Rules(quantum_s=1.5, generation_s=1.5, load_s=1.5)
ROOMY = budget.Rules(crashes=100, lane_crashes=100)
FAULTS = ["abort_on_item", "garbage_frame", "oversized_frame", "half_frame", "wrong_req_id"]
STAGES = ["load", "embed", "rerank", "generate", "info", "unload"]


async def ask(world, key, stage: str, token: int = 5):
    """One request of this stage."""
    pool = world.pool
    if stage == "embed":
        return await pool.embed(key, share([token]))
    if stage == "rerank":
        return await pool.rerank(key, 1, [1], ids(token, token))
    if stage == "generate":
        return await pool.generate(key, ids(token), 4)
    if stage == "info":
        return await pool.info(key)
    return await pool.unload(key)


async def works(world) -> None:
    """A model without switches answers, whatever was before."""
    good = await world.load()
    assert (await world.pool.embed(good.key, share([1, 2]))).n == 1


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_at_any_stage_is_one_typed_error_and_the_next_request_is_served(tmp_path, fault):
    async with pools(tmp_path, redispatch=False, budget=ROOMY) as world:
        for stage in STAGES:
            if stage == "load":
                with pytest.raises(EngineCrashed) as caught:
                    await world.load(**{fault: "load"})
            else:
                model = await world.load(**{fault: stage})
                if stage == "unload":  # its memory is given back all the same: nobody has to know
                    await ask(world, model.key, stage)
                    await works(world)
                    continue
                with pytest.raises(EngineCrashed) as caught:
                    await ask(world, model.key, stage)
            error = caught.value
            assert (error.stage, error.code) == (stage, "engine_crashed")
            assert error.signal is not None or error.exit_code is not None
            if fault == "abort_on_item":
                assert error.signal == signal.SIGABRT
            await works(world)
        assert world.pool.health().lanes[0].starts == 1 + len(STAGES)


@pytest.mark.parametrize("stage", ["load", "embed", "rerank", "generate", "info"])
async def test_a_hang_is_killed_at_the_workers_deadline_and_not_run_again(tmp_path, stage):
    async with pools(tmp_path, deadlines=SHORT, budget=ROOMY, workers=2) as world:
        await works(world)
        await eventually(lambda: all(lane.pid for lane in world.pool.health().lanes))
        pids = [lane.pid for lane in world.pool.health().lanes]
        asked = world.load(hang_on_item="load")
        if stage != "load":
            asked.close()
            asked = ask(world, (await world.load(hang_on_item=stage)).key, stage)
        with pytest.raises(EngineCrashed) as caught:
            await asked
        assert (caught.value.stage, caught.value.during, caught.value.signal) == ("timeout", stage, 9)
        assert len([pid for pid in pids if gone(pid)]) == 1
        await works(world)


async def test_a_crash_is_told_with_the_last_of_the_output_tagged(tmp_path):
    async with pools(tmp_path, redispatch=False) as world:
        model = await world.load(abort_on_item="5", stdout_flood="20000")
        await world.pool.embed(model.key, share([1]))
        with pytest.raises(EngineCrashed) as caught:
            await world.pool.embed(model.key, share([5]))
        told = caught.value.output
        assert 4096 < len(told.encode()) <= 8192
        assert all(line.startswith(("[stdout]", "[stderr]")) for line in told.split("\n"))


async def test_a_flood_on_stdout_holds_nobody_up_and_memory_is_capped(tmp_path):
    async with pools(tmp_path) as world:
        model = await world.load(stdout_flood="30000000")
        for token in range(1, 6):
            vectors = await world.pool.embed(model.key, share([token]))
            assert len(floats(vectors.data)) == model.dims
        worker = world.pool.lanes[0].worker
        assert worker is not None
        assert len(worker.output.encode()) <= 2 * (64 << 10)
        assert world.pool.health().lanes[0].starts == 1


async def test_a_crash_is_run_again_once_on_the_other_worker_and_its_caller_sees_nothing_of_it(tmp_path):
    async with pools(tmp_path, workers=2) as world:
        model = await world.load(exit_code_after="3:2")
        first = await world.pool.embed(model.key, share([7]))
        second = await world.pool.embed(model.key, share([7]))  # the second on this worker: it exits
        assert floats(first.data) == floats(second.data)
        crashed = [lane for lane in world.pool.health().lanes if lane.last_crash]
        assert len(crashed) == 1
        assert "exit code 3" in str(crashed[0].last_crash)


async def test_with_one_worker_it_is_run_again_by_its_next_life_and_the_model_is_loaded_again(tmp_path):
    async with pools(tmp_path) as world:
        model = await world.load(exit_code_after="3:2")
        answers = [floats((await world.pool.embed(model.key, share([7]))).data) for _ in range(2)]
        assert answers[0] == answers[1]
        assert world.pool.health().lanes[0].starts == 2


async def test_whoever_is_run_for_the_second_time_already_is_not_run_again(tmp_path):
    async with pools(tmp_path, workers=2) as world:
        model = await world.load(exit_code_after="3:2")
        await world.pool.embed(model.key, share([7]))
        with pytest.raises(RequestPoisoned) as caught:
            await world.pool.embed(model.key, share([7]), call=Call(attempt=1))
        assert not caught.value.safe_to_retry


async def test_a_poison_request_is_refused_and_never_quarantines_the_model_for_others(tmp_path):
    async with pools(tmp_path, workers=2) as world:
        model = await world.load(abort_on_item="13")
        for _ in range(10):
            with pytest.raises(RequestPoisoned) as caught:
                await world.pool.embed(model.key, share([13]))
            assert caught.value.code == "engine_crashed"
            assert not caught.value.safe_to_retry
            assert (await world.pool.embed(model.key, share([12]))).n == 1
        assert sum(lane.starts for lane in world.pool.health().lanes) <= 4  # two crashes, and no more
        assert not world.pool.health().models[0].quarantined


async def test_a_request_that_hangs_again_and_again_is_charged_once_and_then_refused(tmp_path):
    async with pools(tmp_path, deadlines=SHORT) as world:
        model = await world.load(hang_on_item="13")
        with pytest.raises(EngineCrashed) as caught:
            await world.pool.embed(model.key, share([13]))
        assert not isinstance(caught.value, RequestPoisoned)
        for _ in range(4):
            with pytest.raises(RequestPoisoned):
                await world.pool.embed(model.key, share([13]))
        assert world.pool.health().lanes[0].starts <= 3
        assert (await world.pool.embed(model.key, share([12]))).n == 1


async def test_one_of_a_batch_kills_it_and_the_others_get_their_vectors(tmp_path):
    async with pools(tmp_path, workers=2) as world:
        model = await world.load(abort_on_item="13")
        shares = [share([1], [2]), share([13]), share([3, 4])]
        alone = [await world.pool.embed(model.key, shares[0]), await world.pool.embed(model.key, shares[2])]
        found = await world.pool.embed_batch(model.key, shares)
        assert isinstance(found[1], RequestPoisoned)
        assert bytes(found[0].data) == bytes(alone[0].data)
        assert bytes(found[2].data) == bytes(alone[1].data)
        # Again: the poison is known, and the rest are one batch that nobody kills.
        starts = sum(lane.starts for lane in world.pool.health().lanes)
        again = await world.pool.embed_batch(model.key, shares)
        assert isinstance(again[1], RequestPoisoned)
        assert bytes(again[0].data) == bytes(alone[0].data)
        assert sum(lane.starts for lane in world.pool.health().lanes) == starts
        assert not world.pool.health().models[0].quarantined


async def test_three_crashes_quarantine_the_model_for_all_and_no_other_model(tmp_path):
    async with pools(tmp_path, redispatch=False) as world:
        model = await world.load(abort_on_item="embed")
        for token in (1, 2, 3):
            with pytest.raises(EngineCrashed):
                await world.pool.embed(model.key, share([token]))
        with pytest.raises(ModelQuarantined) as caught:
            await world.pool.embed(model.key, share([4]))
        assert caught.value.code == "probe_required"
        assert 50 < caught.value.retry_after_s <= 60
        with pytest.raises(ModelQuarantined):
            await world.load(abort_on_item="embed")
        await works(world)
        assert await world.pool.probe(model.key) is False
        with pytest.raises(ModelQuarantined) as caught:
            await world.pool.generate(model.key, ids(1), 1)
        assert 110 < caught.value.retry_after_s <= 120


async def test_a_timed_probe_frees_a_model_that_is_well_again(tmp_path):
    rules = budget.Rules(crashes=2, probe_s=0.3, probe_most_s=0.3)
    async with pools(tmp_path, redispatch=False, budget=rules) as world:
        model = await world.load(exit_code_after="4:2")
        for token in (1, 2, 3, 4):
            with contextlib.suppress(EngineCrashed):
                await world.pool.embed(model.key, share([token]))
        assert world.pool.health().models[0].quarantined
        await eventually(lambda: not world.pool.health().models[0].quarantined)


async def test_a_quarantine_outlives_the_pool_and_a_file_that_is_broken_closes_all(tmp_path):
    file = tmp_path / "quarantine.json"
    async with pools(tmp_path, redispatch=False, quarantine_file=file) as world:
        model = await world.load(abort_on_item="embed")
        for token in (1, 2, 3):
            with pytest.raises(EngineCrashed):
                await world.pool.embed(model.key, share([token]))
    async with pools(tmp_path, quarantine_file=file) as world:
        with pytest.raises(ModelQuarantined):
            await world.load(abort_on_item="embed")
        await works(world)
    file.write_text("{")
    async with pools(tmp_path, quarantine_file=file) as world:
        with pytest.raises(ModelQuarantined):
            await world.load()
        assert world.pool.health().models[0].quarantined
        assert await world.pool.probe(key_of(world.artifact, {}))
        await works(world)
    async with pools(tmp_path, quarantine_file=file) as world:
        await works(world)  # its probe passed, and that was kept
        with pytest.raises(ModelQuarantined):
            await world.load(dims="16")


async def test_crashes_over_all_work_degrade_the_pool_and_health_says_so(tmp_path):
    async with pools(tmp_path, redispatch=False) as world:
        for number in range(4):
            assert world.pool.health().state == "ok"
            model = await world.load(abort_on_item="embed", ctx_size=str(100 + number))
            with pytest.raises(EngineCrashed):
                await world.pool.embed(model.key, share([number + 1]))
            await works(world)
        assert world.pool.health().state == "degraded"


async def test_refusals_are_typed_cost_nothing_and_the_worker_lives(tmp_path):
    async with pools(tmp_path) as world:
        pid = world.pid()
        for code, cause in {
            "artifact_invalid": ArtifactInvalid,
            "config_invalid": ConfigInvalid,
            "oom": LoadOutOfMemory,
        }.items():
            for _ in range(4):
                with pytest.raises(cause) as caught:
                    await world.load(start_error=code)
                assert caught.value.code == code
        forged = Artifact(path=world.artifact.path, digest="sha256:" + "0" * 64, format="fake")
        with pytest.raises(ArtifactInvalid):
            await world.pool.load(forged, {})
        gone_file = Artifact(path=tmp_path / "none", digest=world.artifact.digest, format="fake")
        with pytest.raises(ArtifactInvalid):
            await world.pool.load(gone_file, {"ctx_size": "8"})
        with pytest.raises(ConfigInvalid, match="no_such_key"):
            await world.load(no_such_key="1")
        model = await world.load()
        with pytest.raises(BadRequest):
            await world.pool.embed(model.key, share([1]), pooling="rank")
        with pytest.raises(BadRequest):
            await world.pool.embed(model.key, share([]))
        assert not issubclass(OutOfMemory, LoadOutOfMemory)
        assert world.pid() == pid


async def test_a_request_larger_than_a_frame_is_refused_before_it_is_sent(tmp_path):
    async with pools(tmp_path, max_frame=1 << 16) as world:
        model = await world.load()
        with pytest.raises(BadRequest, match="65536"):
            await world.pool.embed(model.key, share(range(1, 20_000)))
        assert (await world.pool.embed(model.key, share(range(1, 10_000)))).n == 1


async def test_a_model_that_nobody_loaded_is_unknown(tmp_path):
    async with pools(tmp_path) as world:
        model = await world.load()
        await world.pool.unload(model.key)
        with pytest.raises(ModelUnknown):
            await world.pool.embed(model.key, share([1]))
        await world.pool.unload(model.key)


# -- what the fake engine cannot do: a stranger's worker


async def test_a_published_worker_without_types_is_asked_only_what_v1_has(tmp_path):
    async with pools(tmp_path, scripted("good")) as world:
        model = await world.load()
        assert floats((await world.pool.embed(model.key, share([1], [2]))).data)
        assert (await world.pool.generate(model.key, ids(1), 1)).text == "done"
        with pytest.raises(CapabilityAbsent):
            await world.pool.info(model.key)
        with pytest.raises(CapabilityAbsent):
            await anext(world.pool.generate_stream(model.key, ids(1), 1))
        assert world.pool.health().lanes[0].starts == 1


async def test_a_model_that_the_worker_lost_is_loaded_again_once(tmp_path):
    async with pools(tmp_path, scripted("forgets")) as world:
        model = await world.load()
        assert (await world.pool.embed(model.key, share([1]))).n == 1
    async with pools(tmp_path, scripted("forgets_always")) as world:
        model = await world.load()
        with pytest.raises(ModelUnknown):
            await world.pool.embed(model.key, share([1]))
        assert world.pool.health().lanes[0].starts == 1


async def test_a_worker_that_closes_its_connection_and_lives_on_is_killed(tmp_path):
    async with pools(tmp_path, scripted("closes"), exit_s=0.3, redispatch=False) as world:
        model, pid = await world.load(), world.pid()
        with pytest.raises(EngineCrashed) as caught:
            await world.pool.embed(model.key, share([1]))
        assert (caught.value.stage, caught.value.signal) == ("embed", 9)
        assert gone(pid)


async def test_a_child_of_a_dead_worker_that_holds_its_descriptors_delays_nothing_and_dies_too(tmp_path):
    async with pools(tmp_path, scripted("dies_with_kin"), redispatch=False) as world:
        model = await world.load()
        with pytest.raises(EngineCrashed) as caught:
            await world.pool.embed(model.key, share([1]))
        assert caught.value.signal == signal.SIGSEGV
        assert "[stderr] about to die" in caught.value.output
        await eventually(lambda: not [pid for pid in named("sleep\x00600") if os.getpgid(pid) == pid])


async def test_an_answer_that_came_whole_before_the_worker_died_is_an_answer(tmp_path):
    async with pools(tmp_path, scripted("answers_then_dies"), budget=ROOMY) as world:
        model = await world.load()
        for token in range(1, 6):
            vectors = await world.pool.embed(model.key, share([token]))
            assert bytes(vectors.data) == ids(token)


@pytest.mark.parametrize("behaviour", ["garbage", "wrong_n"])
async def test_what_does_not_fit_the_request_is_a_violation(tmp_path, behaviour):
    async with pools(tmp_path, scripted(behaviour), redispatch=False) as world:
        model = await world.load()
        with pytest.raises(EngineCrashed, match="broke the protocol") as caught:
            await world.pool.embed(model.key, share([1]))
        assert caught.value.stage == "embed"


async def test_a_second_answer_is_never_given_to_the_next_caller(tmp_path):
    async with pools(tmp_path, scripted("answers_twice"), budget=ROOMY) as world:
        model = await world.load()
        for token in range(1, 8):
            vectors = await world.pool.embed(model.key, share([token]), call=Call(within_s=30))
            assert bytes(vectors.data) == ids(token)


async def test_pings_that_are_not_answered_are_the_end_of_an_idle_worker(tmp_path):
    quick = {"ping_every_s": 0.2, "ping_within_s": 0.2}
    async with pools(tmp_path, scripted("mute_ping"), **quick) as world:
        pid = world.pid()
        await eventually(lambda: world.pool.health().lanes[0].state == "unresponsive")
        assert world.pool.health().state == "down"
        await eventually(lambda: gone(pid))
        await eventually(lambda: "ping" in str(world.pool.health().lanes[0].last_crash))


async def test_health_is_what_the_last_pong_said_and_its_age(tmp_path):
    async with pools(tmp_path, scripted("good"), ping_every_s=0.1) as world:
        await eventually(lambda: world.pool.health().lanes[0].rss_mb)
        lane = world.pool.health().lanes[0]
        assert (lane.rss_mb, lane.models_loaded, lane.placement_share) == (12.5, 1, 0.75)
        assert lane.engine == "scripted 0"
        pid = world.pid()
        os.kill(pid, signal.SIGSTOP)
        await eventually(lambda: world.pool.health().lanes[0].pong_age_s > 1.0)
        assert world.pool.health().lanes[0].rss_mb == 12.5
        os.kill(pid, signal.SIGCONT)
        await eventually(lambda: world.pool.health().lanes[0].pong_age_s < 0.5)


async def test_no_worker_at_all_is_told_within_the_callers_time_with_the_reason(tmp_path):
    marker = tmp_path / "once"
    async with pools(tmp_path, scripted(f"once:{marker}")) as world:
        model = await world.load()
        os.kill(world.pid(), signal.SIGKILL)
        await eventually(lambda: "before it said HELLO" in str(world.pool.health().lanes[0].last_crash))
        with pytest.raises(WorkerUnavailable, match="exit code 7"):
            await world.pool.embed(model.key, share([1]), call=Call(within_s=0.3))
        assert world.pool.health().queued == 0
        assert not world.pool.health().models[0].quarantined
        await eventually(lambda: world.pool.health().degraded, what="starts that fail to count for all work")


async def test_a_slow_worker_is_no_hang_and_a_callers_own_deadline_kills_nobody(tmp_path):
    async with pools(tmp_path) as world:
        model, pid = await world.load(slow_ms="400"), world.pid()
        with pytest.raises(DeadlineExceeded):
            await world.pool.embed(model.key, share([1]), call=Call(within_s=0.05))
        assert (await world.pool.embed(model.key, share([2]))).n == 1
        assert world.pid() == pid


# -- streams and cancels


async def test_a_stream_is_not_run_again_after_its_first_token(tmp_path):
    async with pools(tmp_path, scripted("dies_in_stream"), workers=2) as world:
        model = await world.load()
        stream = world.pool.generate_stream(model.key, ids(1), 5)
        assert await anext(stream) == Token(0, "one ")
        with pytest.raises(EngineCrashed) as caught:
            await anext(stream)
        assert (caught.value.stage, caught.value.signal) == ("generate", 9)
        assert sum(lane.starts for lane in world.pool.health().lanes) <= 3


async def test_a_stream_that_nobody_reads_any_more_is_cancelled_and_its_worker_free_at_once(tmp_path):
    async with pools(tmp_path) as world:
        model, pid = await world.load(endless="yes", slow_ms="20"), world.pid()
        stream = world.pool.generate_stream(model.key, ids(1, 2), 100_000)
        assert (await anext(stream)).text == "1 "
        await stream.aclose()
        assert (await world.pool.embed(model.key, share([1]), call=Call(within_s=20))).n == 1
        assert world.pid() == pid


async def test_a_cancelled_generation_ends_with_what_there_is(tmp_path):
    async with pools(tmp_path) as world:
        model, call = await world.load(endless="yes", slow_ms="20"), Call()
        running = asyncio.ensure_future(world.pool.generate(model.key, ids(1, 2), 100_000, call=call))
        await eventually(lambda: world.pool.health().lanes[0].busy_s)
        call.cancel()
        assert (await running).finish_reason == "cancelled"


async def test_a_cancel_that_is_not_answered_is_a_kill(tmp_path):
    async with pools(tmp_path, scripted("mute_cancel"), cancel_s=0.3) as world:
        model, pid, call = await world.load(), world.pid(), Call()
        stream = world.pool.generate_stream(model.key, ids(1), 5, call=call)
        await anext(stream)
        call.cancel()
        with pytest.raises(EngineCrashed) as caught:
            await anext(stream)
        assert (caught.value.stage, caught.value.during) == ("cancel", "generate")
        assert gone(pid)


@pytest.mark.parametrize("behaviour", ["cannot_cancel", "cancel_crosses", "cancels"])
async def test_a_cancel_that_cannot_be_or_comes_late_leaves_one_answer_and_the_worker(tmp_path, behaviour):
    async with pools(tmp_path, scripted(behaviour), cancel_s=30) as world:
        model, pid, call = await world.load(), world.pid(), Call()
        stream = world.pool.generate_stream(model.key, ids(1), 5, call=call)
        await anext(stream)
        call.cancel()
        rest = [part async for part in stream]
        assert [part.finish_reason for part in rest] == ["cancelled" if behaviour == "cancels" else "stop"]
        assert (await world.pool.embed(model.key, share([9]))).n == 1
        assert world.pid() == pid
