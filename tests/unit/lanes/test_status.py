"""What a lane says of itself, and a lane host's parameters: pure."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.lanes.settings import ParameterRefused, of_parameters
from bakemesh.lanes.status import Host, crashes_of, state_of, status_of
from bakemesh.workerpool import LaneHealth, LaneState, ModelKey

WORDS = {"starting", "idle", "busy", "crashed", "unresponsive", "closed"}


@given(st.sampled_from(LaneState), st.booleans(), st.booleans())
def test_idle_is_said_only_of_a_lane_that_would_take_a_request(
    state: LaneState, taken: bool, closing: bool
) -> None:
    word = state_of(state, taken=taken, closing=closing)
    assert word in WORDS
    if word == "idle":
        assert state in (LaneState.IDLE, LaneState.PINGING)
        assert not taken
        assert not closing
    if taken:  # whoever is waiting must not take its lane for closed
        assert word != "closed" or state is LaneState.CLOSED


def health(state: LaneState = LaneState.IDLE, starts: int = 1) -> LaneHealth:
    return LaneHealth(
        name="w0",
        state=state,
        pid=7,
        engine="fake 1",
        types=("GENERATE_STREAM",),
        starts=starts,
        alive_age_s=0.1,
        pong_age_s=0.2,
        rss_mb=3.0,
        models_loaded=1,
        placement_share=None,
        busy_s=None,
        models=(),
        last_crash="why",
    )


def test_a_status_names_each_model_that_is_loaded_or_refused() -> None:
    loaded, refused, both = (ModelKey(each * 64, "fake", (("dims", "8"),)) for each in "abc")
    said = status_of(
        Host("Gamma", "gamma", "1.0", "run"),
        "lanes-w0",
        health(),
        serial=3,
        state="busy",
        busy_s=1.25,
        degraded=True,
        loaded=[loaded, both],
        refused=[refused, both],
    )
    models = {each["digest"]: (each["loaded"], each["quarantined"]) for each in said.models}
    assert models == {
        f"sha256:{'a' * 64}": (1, 0),
        f"sha256:{'b' * 64}": (0, 1),
        f"sha256:{'c' * 64}": (1, 1),
    }
    assert said.models[0]["config"] == {"dims": "8"}
    assert (said.lane, said.node_id, said.serial, said.busyms, said.degraded) == (
        "lanes-w0",
        "gamma",
        3,
        1250,
        True,
    )
    assert (said.pid, said.problem, said.version, said.run) == (7, "why", "1.0", "run")


def test_crashes_are_the_starts_but_the_one_that_lives() -> None:
    assert crashes_of(health(starts=1)) == 0
    assert crashes_of(health(starts=3)) == 2
    assert crashes_of(health(LaneState.BACKOFF, starts=3)) == 3
    assert crashes_of(health(LaneState.STARTING, starts=0)) == 0


def read(**given: int | float | str) -> object:
    return of_parameters(given, node="A", node_id="a", name="lanes", data=Path("/data"), drain_s=2.0)


def test_parameters_are_read() -> None:
    settings = of_parameters(
        {"workers": 3, "engine": "fake", "cache": "/models"},
        node="A",
        node_id="a",
        name="lanes",
        data=Path("/data"),
        drain_s=2.0,
    )
    assert (settings.workers, settings.engine, settings.cache) == (3, "fake", Path("/models"))
    pool = settings.pool()
    assert pool.command[-2:] == ("--engine", "fake")
    assert pool.quarantine_file == Path("/data/quarantine.json")
    assert not pool.redispatch


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"worker": 2}, "'worker'; a lane host has workers, engine, cache"),
        ({"workers": 0}, "from 1 to 1024"),
        ({"workers": "2"}, "from 1 to 1024"),
        ({"engine": "gpt"}, "one of llama, fake"),
    ],
)
def test_a_wrong_parameter_is_named_with_what_would_be_right(given_, said) -> None:
    with pytest.raises(ParameterRefused, match=said):
        read(**given_)
