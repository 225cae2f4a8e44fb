"""The worker's parts without a process: arguments, configuration, digests, transport, the fake arithmetic."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import threading
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.cli.verbs import worker as verb
from bakemesh.protocol.worker.headers import CODES
from bakemesh.worker import artifact, config, engines
from bakemesh.worker.__main__ import arguments
from bakemesh.worker.engines import fake
from bakemesh.worker.engines.base import EngineError
from bakemesh.worker.engines.fake_switches import KEYS, Switches
from bakemesh.worker.memory import rss_mb
from bakemesh.worker.requests import all_within
from bakemesh.worker.transport import PipeChannel, SocketChannel

HEX = "ab" * 32


@pytest.mark.parametrize(
    "argv",
    [
        ["--socket", "/s", "--nonce", "aa", "--engine", "fake"],
        ["--engine=fake", "--nonce=aa", "--socket=/s"],
        ["--socket=/s", "--nonce", "aa", "--engine", "fake"],
    ],
)
def test_arguments(argv: list[str]) -> None:
    assert arguments(argv) == {"socket": "/s", "nonce": "aa", "engine": "fake"}


def test_the_engine_is_llama_unless_said() -> None:
    assert arguments(["--socket", "a=b", "--nonce", "--x"]) == {
        "socket": "a=b",
        "nonce": "--x",
        "engine": "llama",
    }
    assert arguments(["--help"]) is None


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["--socket", "/s"], "--nonce is missing"),
        (["--socket"], "--socket wants a value"),
        (["--socket=", "--nonce", "a"], "--socket wants a value"),
        (["socket", "/s"], "no argument 'socket'"),
        (["--speed", "9"], "no argument '--speed'"),
    ],
)
def test_arguments_that_are_wrong(argv: list[str], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        arguments(argv)


def test_the_command_line_knows_the_engines() -> None:
    assert verb.ENGINES == engines.NAMES
    with pytest.raises(engines.NoSuchEngine, match="llama, fake"):
        engines.make("steam")


def test_a_config_is_read_as_it_was_checked() -> None:
    given_ = {
        "ctx_size": "512",
        "gpu_layers": "-1",
        "pooling": "cls",
        "allow_unverified": "yes",
        "model_path": "?",
    }
    config.check(given_)
    read = config.RuntimeConfig.of(given_)
    assert (read.ctx_size, read.gpu_layers, read.pooling) == (512, -1, "cls")
    assert (read.allow_unverified, read.allow_unfaithful, read.flash_attention) == (True, False, "auto")
    assert config.RuntimeConfig.of({}) == config.RuntimeConfig()


@given(st.dictionaries(st.sampled_from([*config.KEYS, "other"]), st.text(max_size=6), max_size=4))
def test_what_check_lets_pass_can_be_read(given_: dict[str, str]) -> None:
    if (said := refusal(lambda: config.check(given_))) is None:
        config.RuntimeConfig.of(given_)
    else:
        assert any(f"runtime_config.{key}" in said for key in given_)


@given(
    st.dictionaries(st.sampled_from(KEYS), st.text(max_size=6) | st.sampled_from(["1:2", "7", "any", "oom"]))
)
def test_the_fakes_switches_are_read_or_refused_by_name(given_: dict[str, str]) -> None:
    config.check(given_, KEYS)
    said = refusal(lambda: Switches.of(given_))
    assert said is None or any(f"runtime_config.{key}" in said for key in given_)


def refusal(call: Callable[[], object]) -> str | None:
    """How it is refused as config_invalid; None: it is not."""
    try:
        call()
    except config.ConfigInvalid as error:
        return error.msg
    return None


@pytest.mark.parametrize("given_", [HEX, HEX.upper(), f"sha256:{HEX}"])
def test_digests(given_: str) -> None:
    assert artifact.expected(given_, allow_unverified=True) == HEX


def test_what_is_handed_on_is_the_file_that_was_digested(tmp_path: Path) -> None:
    path = tmp_path / "m"
    content = os.urandom(3 << 20)
    path.write_bytes(content)
    with artifact.proven(str(path), hashlib.sha256(content).hexdigest(), False) as fd:
        path.unlink()
        path.write_bytes(b"another")
        assert os.read(fd, 10) == content[:10], "it is at its beginning"
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_nothing_stays_open_after_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"x")
    before = len(os.listdir("/proc/self/fd"))
    for path in (tmp_path / "m", tmp_path):
        with pytest.raises(artifact.ArtifactInvalid), artifact.proven(str(path), HEX, False):
            raise AssertionError("not reached")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_socket_takes_pieces_larger_than_its_buffer() -> None:
    ours, theirs = socket.socketpair()
    channel, got = SocketChannel(ours), bytearray()
    numbers = array("f", [1.5]) * 500_000
    pieces = [b"head", memoryview(numbers), b"", memoryview(b"tail")]

    def drain() -> None:
        while chunk := theirs.recv(1 << 16):
            got.extend(chunk)

    reader = threading.Thread(target=drain)
    reader.start()
    channel.send(pieces)
    ours.close()
    reader.join()
    theirs.close()
    assert bytes(got) == b"head" + numbers.tobytes() + b"tail"


def test_looking_does_not_wait_and_loses_nothing() -> None:
    ours, theirs = socket.socketpair()
    room = memoryview(bytearray(10))
    with ours, theirs:
        channel = SocketChannel(ours)
        assert channel.recv_now(room) is None
        theirs.sendall(b"abc")
        assert (channel.recv_now(room[:2]), channel.recv_into(room[2:])) == (2, 1)
        assert bytes(room[:3]) == b"abc"
        theirs.close()
        assert channel.recv_now(room) == 0


def test_a_waiting_socket_can_be_ended_from_outside() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = SocketChannel(ours)
        channel.end_waiting()
        assert channel.recv_into(memoryview(bytearray(10))) == 0
        channel.send([b"still"])
        assert theirs.recv(10) == b"still"
    channel.end_waiting()  # on one that is closed: nothing to end


def test_a_pipes_channel_on_other_files() -> None:
    """As far as this can be run without Windows."""
    out, back = os.pipe()
    waiting = 0
    with io.FileIO(out) as read, io.FileIO(back, "w") as write:

        class Both(io.RawIOBase):
            def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
                return read.readinto(buffer) or 0

            def write(self, data: memoryview) -> int:  # type: ignore[override]
                return write.write(data[:7]) or 0

        channel = PipeChannel(Both(), lambda: waiting)
        room = memoryview(bytearray(100))
        assert channel.recv_now(room) is None
        channel.send([b"0123456789", memoryview(array("i", [1, 2]))])
        waiting = 4
        assert channel.recv_now(room) == 4
        assert channel.recv_into(room[4:]) == 14
        assert bytes(room[:18]) == b"0123456789" + array("i", [1, 2]).tobytes()


IDS = st.lists(st.integers(0, fake.N_VOCAB - 1), min_size=1, max_size=20)


@given(IDS, st.sampled_from(("mean", "cls", "last")))
def test_a_fake_vector_follows_from_its_ids_alone(ids: list[int], pooling: str) -> None:
    row = fake.vector(ids, pooling, True, 16)
    assert row == fake.vector(memoryview(array("i", ids)), pooling, True, 16)
    assert len(row) == 16
    assert sum(each * each for each in row) == pytest.approx(1)
    assert max(map(abs, fake.vector(ids, pooling, False))) <= 1


@given(IDS, IDS)
def test_a_fake_score_is_exact(query: list[int], candidate: list[int]) -> None:
    assert -5 <= fake.score(query, candidate) <= 5


@given(
    st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 40_000), min_size=1, max_size=30),
    st.integers(1, 2**31 - 1) | st.integers(1, 40_000),
)
def test_ids_are_all_within_where_each_is(ids: list[int], n_vocab: int) -> None:
    data = memoryview(array("i", ids)).cast("B")
    assert all_within(data, n_vocab) == all(0 <= each < n_vocab for each in ids)


@pytest.mark.parametrize("n_vocab", [1, 2, 30_522, 32_000, 65_536, 2**24, 2**31 - 1])
def test_the_last_id_of_a_vocabulary_is_within_and_the_next_is_not(n_vocab: int) -> None:
    def within(*ids: int) -> bool:
        return all_within(memoryview(array("i", ids)).cast("B"), n_vocab)

    assert within(0, n_vocab - 1, 0)
    assert not within(0, -1, 0)
    assert not within(0, min(n_vocab, 2**31 - 1), 0)


def test_errors_carry_codes_of_the_wire() -> None:
    for error in (config.ConfigInvalid("x"), artifact.ArtifactInvalid("x")):
        assert isinstance(error, EngineError)
        assert error.code in CODES
    assert 1 < rss_mb() < 10_000
