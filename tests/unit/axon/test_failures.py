"""What the mesh could not do, as it is told outside."""

from __future__ import annotations

import pytest

from bakemesh.axon.failures import TABLE, failure_of
from bakemesh.bus.errors import NotConnected
from bakemesh.inference import errors
from bakemesh.inference.errors import InferenceError, NoNode, raised
from bakemesh.protocol.axon.verdicts import Verdict
from bakemesh.protocol.inference.errors import PASSING, Code, ErrorObject, error_of

ABOUT_THE_REQUEST = {Code.TOO_MANY_TOKENS, Code.BAD_REQUEST, Code.CAPABILITY_ABSENT}


def classes(base: type[InferenceError] = InferenceError) -> list[type[InferenceError]]:
    return [each for sub in base.__subclasses__() for each in (sub, *classes(sub))]


def test_every_code_and_every_class_of_the_client_has_a_row() -> None:
    assert set(Code) <= set(TABLE)
    assert {each.CODE for each in classes()} - {""} <= set(TABLE)
    assert errors.AnswerBroken.CODE in TABLE


@pytest.mark.parametrize("code", list(Code))
def test_what_a_node_says_goes_outside_only_where_it_is_about_the_request(code: Code) -> None:
    failure = failure_of(raised(error_of(code, "said: /secret/model.gguf"), "alpha"))
    assert ("/secret" in failure.message) == (code in ABOUT_THE_REQUEST)
    assert "alpha" not in failure.message
    assert failure.inside == "node alpha: said: /secret/model.gguf"
    assert failure.code.isidentifier()


@pytest.mark.parametrize("code", list(Code))
def test_a_retry_after_stands_where_trying_again_can_help(code: Code) -> None:
    failure = failure_of(raised(error_of(code, "x", retry_after_ms=2400)))
    assert failure.retry_after_s in (3, None)
    if failure.retry_after_s:
        assert code in PASSING
        assert failure.status == 503
    assert failure_of(raised(error_of(Code.QUEUE_FULL, "x"))).retry_after_s == 1


@pytest.mark.parametrize(
    ("code", "status", "verdict"),
    [
        (Code.QUEUE_FULL, 503, Verdict.OVERLOADED),
        (Code.LANE_BUSY, 503, Verdict.OVERLOADED),
        (Code.DEADLINE_EXCEEDED, 408, Verdict.TIMED_OUT),
        (Code.MODEL_UNKNOWN, 404, Verdict.OVERLOADED),
        (Code.TOO_MANY_TOKENS, 400, Verdict.BAD_BODY),
        (Code.BAD_REQUEST, 400, Verdict.BAD_BODY),
        (Code.ENGINE_CRASHED, 500, Verdict.FAILED),
    ],
)
def test_the_codes_that_clients_act_on(code: Code, status: int, verdict: Verdict) -> None:
    failure = failure_of(raised(error_of(code, "x")))
    assert (failure.status, failure.verdict) == (status, verdict)


def test_a_code_of_a_newer_node_is_told_by_its_class() -> None:
    passing = failure_of(raised(ErrorObject("new_code", "x", "transient")))
    assert (passing.status, passing.code, passing.retry_after_s) == (503, "new_code", 1)
    lasting = failure_of(raised(ErrorObject("new_code", "x", "permanent")))
    assert (lasting.status, lasting.retry_after_s) == (500, None)


def test_a_bus_that_is_away_and_a_mesh_without_nodes_are_for_later() -> None:
    for error in (NotConnected("nats://secret:4222"), NoNode("node x")):
        failure = failure_of(error)
        assert (failure.status, failure.retry_after_s) == (503, 1)
        assert "secret" not in failure.message
