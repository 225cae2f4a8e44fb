"""What can be attached, and what is refused where it is attached."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bakemesh.edge import AttachRefused, Axon, Call, FileRefused, load
from bakemesh.edge.functions import Kind
from bakemesh.protocol.axon import StreamingSynapse, Synapse


class Echo(Synapse):
    required_hash_fields: ClassVar = ("text",)
    text: str = ""


class Words(StreamingSynapse):
    text: str = ""


async def echo(synapse: Echo) -> Echo:
    return synapse


def plain(synapse: Echo, call: Call) -> Echo:
    return synapse


async def words(synapse: Words, call: Call) -> AsyncIterator[str]:
    yield synapse.text


class Object:
    async def __call__(self, synapse: Echo, call: Call) -> Echo:
        return synapse

    def method(self, synapse: Echo) -> Echo:
        return synapse


@pytest.mark.parametrize(
    ("function", "kind", "takes_call"),
    [
        (echo, Kind.ASYNC, False),
        (plain, Kind.PLAIN, True),
        (Object(), Kind.ASYNC, True),
        (Object().method, Kind.PLAIN, False),
        (functools.partial(plain, call=None), Kind.PLAIN, False),
    ],
)
def test_how_a_function_is_called_is_known_at_once(function: Any, kind: Kind, takes_call: bool) -> None:
    route = Axon().attach(function).routes["Echo"]
    assert route.synapse is Echo
    assert (route.forward.kind, route.forward.takes_call) == (kind, takes_call)


def test_routes_are_in_their_order_with_the_ping_first() -> None:
    axon = Axon().attach(words).attach(echo)
    assert list(axon.routes) == ["Synapse", "Words", "Echo"]
    assert axon.routes["Words"].forward.kind is Kind.STREAM
    assert axon.routes["Synapse"].allow_unhashed_body


def test_the_ping_may_be_ones_own() -> None:
    async def ping(synapse: Synapse) -> Synapse:
        return synapse

    route = Axon().attach(ping).routes["Synapse"]
    assert route.forward.call is ping
    assert route.ignores_body


def _generator(synapse: Echo) -> Iterator[str]:
    yield "a"


async def _streams(synapse: Echo) -> AsyncIterator[str]:
    yield "a"


async def _three(synapse: Echo, call: Call, more: int) -> Echo:
    return synapse


async def _nothing() -> None: ...


async def _untyped(synapse):  # type: ignore[no-untyped-def]
    return synapse


async def _other(synapse: int) -> int:
    return synapse


@pytest.mark.parametrize(
    ("attach", "words"),
    [
        (lambda axon: axon.attach(3), "expected a function of a synapse"),
        (lambda axon: axon.attach(_generator), "plain generator"),
        (lambda axon: axon.attach(_streams), "does not derive from StreamingSynapse"),
        (lambda axon: axon.attach(_three), "takes 3 parameters"),
        (lambda axon: axon.attach(_nothing), "takes 0 parameters"),
        (lambda axon: axon.attach(_untyped), "has no annotation"),
        (lambda axon: axon.attach(_other), "derives from Synapse"),
        (lambda axon: axon.attach(echo).attach(plain), "served already, by echo"),
        (lambda axon: axon.attach(echo, words), "blacklist_fn words is a generator"),
        (lambda axon: axon.attach(echo, unhashed_fields=["txt"]), "its fields are text"),
        (lambda axon: axon.attach(echo, limit_s=0), "seconds above 0"),
    ],
)
def test_what_cannot_serve_is_refused(attach: Any, words: str) -> None:
    with pytest.raises(AttachRefused, match=words):
        attach(Axon())


def test_a_class_that_cannot_be_seen_is_refused_and_can_be_given() -> None:
    def inside() -> Any:
        class Hidden(Synapse):
            text: str = ""

        async def hidden(synapse: Hidden) -> Hidden:
            return synapse

        return hidden, Hidden

    function, kind = inside()
    with pytest.raises(AttachRefused, match="synapse=…"):
        Axon().attach(function)
    assert Axon().attach(function, synapse=kind).routes["Hidden"].synapse is kind


HEAD = """
from bakemesh.edge import Axon
from bakemesh.protocol.axon import Synapse

class Mine(Synapse):
    text: str = ""

async def mine(synapse: Mine) -> Mine:
    return synapse

"""


@pytest.mark.parametrize(
    "rest", ["axon = Axon().attach(mine)", "def routes(axon: Axon) -> None:\n    axon.attach(mine)"]
)
def test_a_file_defines_routes(tmp_path: Path, rest: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from __future__ import annotations\n" + HEAD + rest)
    assert list(load(path, Axon().attach(echo)).routes) == ["Synapse", "Echo", "Mine"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no file"),
        (HEAD, "defines no routes"),
        (HEAD + "axon = Axon()", "attaches nothing"),
        (HEAD + "axon = 3", "defines no routes"),
        ("1 / 0", "ZeroDivisionError"),
        ("def", "SyntaxError"),
        (HEAD + "axon = Axon().attach(mine).attach(mine)", "served already"),
    ],
)
def test_a_file_that_does_not_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(FileRefused, match=words):
        load(path)


def test_two_files_with_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(HEAD + "axon = Axon().attach(mine)")
    axon = load(tmp_path / "one.py")
    with pytest.raises(FileRefused, match="Mine is served already"):
        load(tmp_path / "two.py", axon)


def refuse(synapse: Synapse) -> bool:
    return True


async def stream(synapse: Synapse) -> AsyncIterator[str]:
    yield ""


def test_a_file_may_hold_a_guard_alone(tmp_path: Path) -> None:
    path = tmp_path / "guard.py"
    path.write_text("from bakemesh.edge import Axon\naxon = Axon().guard(lambda synapse: True)")
    axon = load(path)
    assert list(axon.routes) == ["Synapse"]
    assert axon.guarded is not None
    with pytest.raises(FileRefused, match="there is a guard already"):
        load(path, Axon().guard(refuse))


def test_a_guard_that_cannot_stand_is_refused() -> None:
    for given, words in (
        ((), "empty"),
        ((3,), "blacklist_fn is 3"),
        ((None, stream), "priority_fn stream is"),
    ):
        with pytest.raises(AttachRefused, match=words):
            Axon().guard(*given)
