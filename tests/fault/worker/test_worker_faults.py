"""A worker whose host breaks the protocol, vanishes or ends it; the fake engine's failures on the wire."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bakemesh.worker.orphaned import ASKED
from support.workerhost import Host, f32, i32

PROTOCOL = 3
BATCH: dict[str, Any] = {"pooling": "mean", "normalize": True, "items": [{"id": "a", "n_tokens": 1}]}


def busy(host: Host, ref: str, **fields: Any) -> str:
    """A stream in flight, of which one token came."""
    req_id = host.ask_only("GENERATE_STREAM", i32(1, 2, 3), model_ref=ref, max_tokens=100_000, **fields)
    assert host.recv()["type"] == "TOKEN"
    return req_id


def rest(host: Host) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What comes up to the end of the stream: the tokens, and the end."""
    tokens = []
    while (got := host.recv())["type"] == "TOKEN":
        tokens.append(got)
    return tokens, got


@pytest.fixture
def host() -> Any:
    """A worker of its own."""
    with Host() as made:
        yield made


@pytest.fixture
def endless(host: Host) -> str:
    """A model that generates slowly and for ever."""
    return host.load(endless="yes", slow_ms="5")


# -- good ends


def test_the_end_of_the_connection_is_a_good_end(host: Host) -> None:
    host.sock.close()
    assert host.wait() == 0
    assert host.errors() == ""


def test_shutdown(host: Host) -> None:
    host.send({"type": "SHUTDOWN"})
    assert host.ended()
    assert host.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_worker(host: Host, number: signal.Signals) -> None:
    assert host.ask("PING")[0]["type"] == "PONG"
    host.process.send_signal(number)
    assert host.ended()
    assert host.wait() == 0


def test_shutdown_while_busy_finishes_and_answers_first(host: Host) -> None:
    ref = host.load(slow_ms="20")
    req_id = busy(host, ref)
    host.send({"type": "SHUTDOWN"})
    tokens, got = rest(host)
    assert (got["type"], got["req_id"], got["finish_reason"]) == ("TEXT", req_id, "stop")
    assert len(tokens) == 2
    assert host.ended()
    assert host.wait() == 0


def test_term_while_busy_finishes_and_answers_first(host: Host) -> None:
    busy(host, host.load(slow_ms="20"))
    host.process.send_signal(signal.SIGTERM)
    assert rest(host)[1]["text"] == "1 2 3 "
    assert host.ended()
    assert host.wait() == 0


def test_term_while_a_batch_is_computed_answers_it(host: Host) -> None:
    ref = host.load(slow_ms="300")
    req_id = host.ask_only("EMBED_BATCH", i32(1), model_ref=ref, **BATCH)
    wait_until_read(host)
    host.process.send_signal(signal.SIGTERM)
    assert host.recv()["req_id"] == req_id
    host.recv_frame()
    assert host.ended()
    assert host.wait() == 0


def test_a_host_that_vanishes_while_it_generates(host: Host, endless: str) -> None:
    busy(host, endless)
    host.sock.close()
    assert host.wait() == 0
    assert "Traceback" not in host.errors()


def test_a_host_that_vanishes_while_the_engine_hangs(host: Host) -> None:
    """The loop never sees it; the watching thread does."""
    ref = host.load(hang_on_item="5")
    host.ask_only("EMBED_BATCH", i32(5), model_ref=ref, **BATCH)
    wait_until_read(host)
    host.sock.close()
    assert host.wait() == 0
    assert "the host is gone" in host.errors()


def test_a_host_that_is_killed_leaves_no_worker(tmp_path: Path) -> None:
    """The first net alone: the kernel closes the connection, whatever the host could not do."""
    script = (
        "import sys, time\n"
        "from support.workerhost import Host\n"
        "host = Host().__enter__()\n"
        "print(host.process.pid, host.folder, flush=True)\n"
        "time.sleep(600)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env)
    assert owner.stdout is not None
    pid, folder = owner.stdout.readline().split()
    watched = os.pidfd_open(int(pid))
    owner.kill()
    owner.wait()
    owner.stdout.close()
    gone(watched)
    for each in Path(folder).iterdir():
        each.unlink()
    Path(folder).rmdir()


def test_a_host_may_ask_for_the_parent_death_signal() -> None:
    """Even a stopped worker goes with its parent then: nothing but SIGKILL reaches one."""
    script = (
        "import os, subprocess, sys, time\n"
        "worker = subprocess.Popen([sys.executable, '-m', 'bakemesh.worker', '--socket', sys.argv[1],"
        " '--nonce', 'aa', '--engine', 'fake'])\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    folder = Path(f"/tmp/wk-{os.getpid()}-parent")
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(60)
        listener.bind(str(folder / "s"))
        listener.listen(1)
        env = {**os.environ, ASKED: "1"}
        owner = subprocess.Popen(
            [sys.executable, "-c", script, str(folder / "s")], stdout=subprocess.PIPE, text=True, env=env
        )
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        connection, _ = listener.accept()
        with connection:
            connection.recv(1)  # HELLO: it is up
            watched = os.pidfd_open(pid)
            os.kill(pid, signal.SIGSTOP)
            owner.kill()
            owner.wait()
            owner.stdout.close()
            gone(watched)
    (folder / "s").unlink()
    folder.rmdir()


def gone(pidfd: int) -> None:
    """Waits until that process has ended."""
    import select

    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    assert poller.poll(60_000), "the worker lives on"
    os.close(pidfd)


def wait_until_read(host: Host) -> None:
    """Until the worker has taken all that was sent."""
    import fcntl
    import termios

    deadline = time.monotonic() + 60
    while struct.unpack("i", fcntl.ioctl(host.sock, termios.TIOCOUTQ, b"\0\0\0\0"))[0]:
        assert time.monotonic() < deadline


# -- CANCEL


def test_cancel_ends_a_stream_with_what_there_is(host: Host, endless: str) -> None:
    req_id = busy(host, endless)
    host.send({"type": "CANCEL", "req_id": "c1", "target": req_id})
    tokens, got = rest(host)
    assert (got["type"], got["req_id"], got["finish_reason"]) == ("TEXT", req_id, "cancelled")
    assert got["n_gen"] == len(tokens) + 1
    assert got["text"].startswith("1 2 3 1 "[: len(got["text"])])
    assert host.ask("PING")[0]["type"] == "PONG"


def test_cancel_ends_a_generate(host: Host, endless: str) -> None:
    req_id = host.ask_only("GENERATE", i32(1), model_ref=endless, max_tokens=100_000)
    host.send({"type": "CANCEL", "req_id": "c1", "target": req_id})
    got = host.recv()
    assert (got["type"], got["finish_reason"]) == ("TEXT", "cancelled")


def test_cancel_of_another_request_is_ignored(host: Host, endless: str) -> None:
    req_id = busy(host, endless)
    host.send({"type": "CANCEL", "req_id": "c1", "target": "other"})
    host.send({"type": "NEWS", "req_id": "x1", "raw_frames": 1}, b"\0" * 100_000)
    while (got := host.recv())["type"] == "TOKEN":
        assert got["req_id"] == req_id
    assert (got["req_id"], got["code"]) == ("x1", "unknown_type")
    assert host.recv()["type"] == "TOKEN", "the stream goes on"
    host.send({"type": "CANCEL", "req_id": "c2"})
    assert (got := rest(host)[1])["code"] == "bad_request", got
    assert got["req_id"] == "c2"
    host.send({"type": "CANCEL", "req_id": "c3", "target": req_id})
    assert rest(host)[1]["finish_reason"] == "cancelled"


def test_cancels_that_cross_the_answer_are_ignored(host: Host) -> None:
    ref = host.load()
    for number in range(100):
        req_id = host.ask_only("GENERATE", i32(1), model_ref=ref, max_tokens=1)
        host.send({"type": "CANCEL", "req_id": f"c{number}", "target": req_id})
        got = host.recv()
        assert (got["type"], got["req_id"]) == ("TEXT", req_id)
        assert got["finish_reason"] in ("length", "stop", "cancelled")
    assert host.ask("PING")[0]["type"] == "PONG"


# -- a host that breaks the protocol


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (struct.pack("<I", 7) + b"garbage", "no JSON"),
        (struct.pack("<I", 2) + b"[]", "not an object"),
        (struct.pack("<I", 65_537), "65537 bytes"),
        (b"\xff\xff\xff\xff", "4294967295 bytes"),
        (struct.pack("<I", 32) + b'{"type":"PONG","req_id":"r"', "inside a frame"),
        (b"\x01\0", "inside a frame"),
    ],
)
def test_bytes_that_are_no_protocol_end_the_worker(data: bytes, word: str) -> None:
    with Host(max_frame=65_536) as host:
        host.sock.sendall(data)
        host.sock.shutdown(socket.SHUT_WR)
        assert host.ended()
        assert host.wait() == PROTOCOL
        assert word in host.errors()


@pytest.mark.parametrize(
    "header",
    [
        {"type": "HELLO_ACK", "v": 1, "accept": True, "max_frame": 1 << 20},
        {"type": "PONG", "req_id": "r", "rss_mb": 1, "models_loaded": 0},
    ],
)
def test_messages_out_of_step_end_the_worker(host: Host, header: dict[str, Any]) -> None:
    host.send(header)
    assert host.ended()
    assert host.wait() == PROTOCOL


def test_a_second_request_while_busy_ends_the_worker(host: Host, endless: str) -> None:
    busy(host, endless)
    host.ask_only("PING")
    while host._exactly(4):
        pass_over(host)
    assert host.wait() == PROTOCOL
    assert "PING" in host.errors()


def pass_over(host: Host) -> None:
    """Reads bytes until the end; a frame may be cut by nothing here."""
    while host.sock.recv(65_536):
        pass


@pytest.mark.parametrize(
    "ack",
    [
        {"v": 2, "accept": True, "max_frame": 1 << 20},
        {"v": 1, "accept": False, "max_frame": 1 << 20},
        {"v": 1, "accept": True, "max_frame": 100},
        {"type": "PING", "req_id": "r1"},
    ],
)
def test_a_host_that_does_not_take_the_worker(ack: dict[str, Any]) -> None:
    with Host(ack_header=ack) as host:
        assert host.ended()
        assert host.wait() == PROTOCOL
        assert host.errors().startswith("bakemesh worker w1: ")


def test_a_host_that_closes_in_place_of_the_ack() -> None:
    with Host(ack=False) as host:
        host.recv()
        host.sock.close()
        assert host.wait() == 0


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ([], 2),
        (["--socket", "/tmp/x"], 2),
        (["--socket", "/tmp/x", "--nonce", "aa", "--engine", "steam"], 2),
        (["--socket", "/tmp/x", "--nonce", "aa", "--fast"], 2),
        (["--socket", "/nonexistent/x", "--nonce", "aa", "--engine", "fake"], 4),
        (["--socket", "/tmp/" + "x" * 200, "--nonce", "aa", "--engine", "fake"], 4),
        (["--help"], 0),
    ],
)
def test_exit_codes_of_a_start_that_fails(argv: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bakemesh.worker", *argv], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert (done.stderr == "") == (code == 0)
    assert "Traceback" not in done.stderr


# -- limits


def test_a_request_whose_answer_would_not_fit_is_refused() -> None:
    with Host(max_frame=8192) as host:
        ref = host.load(dims="1024")
        assert host.embed(ref, (1,), (2,))[0]["type"] == "VECTORS"
        got, _ = host.embed(ref, (1,), (2,), (3,))
        assert got["code"] == "bad_request"
        assert "12288" in got["msg"]
        got, _ = host.ask("GENERATE", i32(*[31_000] * 2000), model_ref=ref, max_tokens=2000)
        assert (got["type"], got["code"]) == ("ERR", "inference_failed"), "known only when it is said"
        assert host.ask("PING")[0]["type"] == "PONG"


def test_errors_fit_into_the_smallest_frame() -> None:
    with Host(max_frame=4096) as host:
        got, _ = host.try_load("/" + "ü" * 600, "0" * 64)
        assert got["code"] == "artifact_invalid"
        got, _ = host.try_load("/x", "0" * 64, {"k" * 3000: ""})
        assert got["code"] == "config_invalid"


def test_frames_of_64_mib_with_flat_memory() -> None:
    """Ids of 64 MiB in, vectors of 64 MiB out, again and again."""
    items, each = 256, 65_536
    ids = memoryview(bytes(4 * items * each))
    with Host() as host:
        ref = host.load(dims=str(each))

        def once() -> float:
            batch = {
                "model_ref": ref, "pooling": "mean", "normalize": False,
                "items": [{"id": str(n), "n_tokens": each} for n in range(items)],
            }  # fmt: skip
            got, raw = host.ask("EMBED_BATCH", ids, **batch)  # type: ignore[arg-type]
            assert (got["n"], len(raw or b"")) == (items, 64 << 20)
            return float(host.ask("PING")[0]["rss_mb"])

        after = [once() for _ in range(3)]
        assert after[0] < 120, "nothing of it is kept"
        assert after[-1] - after[0] < 8


# -- the fake engine's failures, as a host sees them


def test_abort(host: Host) -> None:
    ref = host.load(abort_on_item="666")
    assert host.embed(ref, (1,))[0]["type"] == "VECTORS"
    host.ask_only("EMBED_BATCH", i32(666), model_ref=ref, **BATCH)
    assert host.ended()
    assert host.wait() == -signal.SIGABRT
    assert "aborts" in host.errors()


def test_abort_at_load(host: Host) -> None:
    path, digest = host.file()
    host.ask_only(
        "LOAD", artifact_path=str(path), artifact_digest=digest, format="fake",
        runtime_config={"abort_on_item": "load"},
    )  # fmt: skip
    assert host.ended()
    assert host.wait() == -signal.SIGABRT


@pytest.mark.parametrize(("given", "code"), [("7:3", 7), ("-9:3", -9), ("0:3", 0)])
def test_exit_after(host: Host, given: str, code: int) -> None:
    ref = host.load(exit_code_after=given)
    for _ in range(2):
        assert host.embed(ref, (1,))[0]["type"] == "VECTORS"
    host.ask_only("EMBED_BATCH", i32(1), model_ref=ref, **BATCH)
    assert host.ended()
    assert host.wait() == code


def test_a_hang_is_ended_by_kill_alone(host: Host) -> None:
    ref = host.load(hang_on_item="666")
    host.ask_only("EMBED_BATCH", i32(666), model_ref=ref, **BATCH)
    wait_until_read(host)
    while "hangs" not in host.errors():
        assert host.process.poll() is None
    host.process.send_signal(signal.SIGTERM)
    host.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        host.sock.recv(1)
    host.process.kill()
    host.sock.settimeout(60)
    assert host.ended()
    assert host.wait() == -signal.SIGKILL


def test_garbage(host: Host) -> None:
    ref = host.load(garbage_frame="ping,7")
    assert host.embed(ref, (1,))[0]["type"] == "VECTORS"
    host.ask_only("EMBED_BATCH", i32(7), model_ref=ref, **BATCH)
    with pytest.raises(ValueError, match=r"decode|property|utf"):
        json.loads(host.recv_frame())


def test_an_oversized_frame(host: Host) -> None:
    ref = host.load(oversized_frame="embed")
    host.ask_only("EMBED_BATCH", i32(7), model_ref=ref, **BATCH)
    assert host.sock.recv(4, socket.MSG_WAITALL) == b"\xff\xff\xff\xff"


def test_half_a_frame(host: Host) -> None:
    ref = host.load(half_frame="generate")
    host.ask_only("GENERATE", i32(7), model_ref=ref, max_tokens=1)
    with pytest.raises(AssertionError, match="ended after"):
        host.recv()
    assert host.wait() == 1


def test_a_wrong_req_id(host: Host) -> None:
    ref = host.load(wrong_req_id="ping,embed")
    host.send({"type": "PING", "req_id": "q"})
    assert host.recv()["req_id"] == "q-other"
    host.ask_only("EMBED_BATCH", i32(7), model_ref=ref, **BATCH)
    assert host.recv()["req_id"] == "q2-other"
    assert len(f32(host.recv_frame())) == 8
