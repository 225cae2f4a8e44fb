"""A stranger's engine worker, of the standard library alone, that behaves as its first argument says.

Written from the protocol's text, not from our code: frames of u32 LE length, HELLO without a type as
published workers send it. `scripted_worker.py BEHAVIOUR --socket PATH --nonce HEX`. VECTORS echo the ids of
each item as its row, so a test can tell whose answer it has.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Any

BEHAVIOUR, PATH, NONCE = sys.argv[1], sys.argv[3], sys.argv[5]
FOREVER = 600.0


class Link:
    """Frames on a blocking socket."""

    def __init__(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(PATH)

    def frame(self, payload: bytes | bytearray) -> None:
        self.sock.sendall(struct.pack("<I", len(payload)))
        self.sock.sendall(payload)

    def say(self, **fields: Any) -> None:
        self.frame(json.dumps(fields).encode())

    def exactly(self, size: int) -> bytearray:
        out = bytearray(size)
        view, got = memoryview(out), 0
        while got < size:
            count = self.sock.recv_into(view[got:])
            if not count:
                sys.exit(0)
            got += count
        return out

    def read(self) -> bytearray:
        return self.exactly(*struct.unpack("<I", self.exactly(4)))

    def hello(self, nonce: str = NONCE, v: int = 1, **more: Any) -> None:
        engine = {"name": "scripted", "version": "0", "build_flags": {}}
        self.say(v=v, nonce=nonce, engine=engine, pid=os.getpid(), max_frame=64 << 20, **more)

    def closed(self) -> bool:
        self.sock.settimeout(30)
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True


def before_hello() -> None:
    """What goes wrong before there is a worker."""
    if BEHAVIOUR == "never_connects":
        time.sleep(FOREVER)
    elif BEHAVIOUR == "exits" or (BEHAVIOUR.startswith("once:") and os.path.exists(BEHAVIOUR[5:])):
        sys.stdout.write("something on stdout\n")
        sys.stderr.write("cannot find my engine\n")
        sys.exit(7)
    elif BEHAVIOUR.startswith("once:"):  # good in its first life only
        open(BEHAVIOUR[5:], "w").close()
    elif BEHAVIOUR == "slow_start":
        time.sleep(1.5)
    elif BEHAVIOUR == "no_hello":
        Link()
        time.sleep(FOREVER)
    elif BEHAVIOUR == "wrong_nonce":
        Link().hello("00" * 16)
        time.sleep(FOREVER)
    elif BEHAVIOUR == "wrong_version":
        Link().hello(v=2)
        time.sleep(FOREVER)
    elif BEHAVIOUR == "half_hello":
        Link().sock.sendall(struct.pack("<I", 100) + b'{"v": 1,')
        sys.exit(3)
    elif BEHAVIOUR == "large_hello":
        Link().sock.sendall(struct.pack("<I", (1 << 32) - 1))
        time.sleep(FOREVER)
    elif BEHAVIOUR == "stranger":
        Link().hello("ff" * 16)
        time.sleep(FOREVER)
    elif BEHAVIOUR == "after_strangers":
        # A worker of a former host speaks first, and two that say nothing or nonsense.
        subprocess.Popen([sys.executable, __file__, "stranger", "--socket", PATH, "--nonce", "x"])
        silent = Link()
        silent.sock.setblocking(True)
        time.sleep(0.3)
        globals()["_kept"] = silent


def answer(link: Link, asked: dict[str, Any]) -> None:
    """One request, as a good worker would."""
    kind, req_id = asked["type"], asked.get("req_id")
    raw = link.read() if kind in ("EMBED_BATCH", "RERANK", "GENERATE", "GENERATE_STREAM") else b""
    if kind == "LOAD":
        link.say(type="LOADED", req_id=req_id, model_ref="m:0", dims=1, cold_load_ms=1)
    elif kind == "EMBED_BATCH":
        items = asked["items"]
        dims = len(raw) // 4 // len(items)
        link.say(type="VECTORS", req_id=req_id, dims=dims, n=len(items))
        link.frame(raw)
    elif kind == "RERANK":
        link.say(type="SCORES", req_id=req_id)
        link.frame(bytes(4 * len(asked["candidates"])))
    elif kind in ("GENERATE", "GENERATE_STREAM"):
        link.say(type="TEXT", req_id=req_id, text="done", n_prompt=1, n_gen=1, finish_reason="stop")
    elif kind == "UNLOAD":
        link.say(type="UNLOADED", req_id=req_id)
    elif kind == "PING":
        link.say(type="PONG", req_id=req_id, rss_mb=12.5, models_loaded=1, placement_share=0.75)
    elif kind == "SHUTDOWN":
        sys.exit(0)
    elif kind != "CANCEL":
        sys.exit(9)  # as published workers do


def generation(link: Link, asked: dict[str, Any]) -> None:
    """A stream whose CANCEL is the matter."""
    req_id = asked["req_id"]
    link.read()
    link.say(type="TOKEN", req_id=req_id, index=0, text="one ")
    if BEHAVIOUR == "dies_in_stream":
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        cancel = json.loads(link.read())
        if cancel["type"] != "CANCEL":
            sys.exit(9)
        if BEHAVIOUR == "mute_cancel":
            continue
        if BEHAVIOUR == "cannot_cancel":
            link.say(type="ERR", req_id=cancel["req_id"], code="unknown_type", msg="no CANCEL here")
        reason = "cancelled" if BEHAVIOUR == "cancels" else "stop"
        link.say(type="TEXT", req_id=req_id, text="one ", n_prompt=1, n_gen=1, finish_reason=reason)
        return


def main() -> None:
    """HELLO, HELLO_ACK, requests."""
    before_hello()
    link = Link()
    streams = "cancel" in BEHAVIOUR or "stream" in BEHAVIOUR
    types = ("GENERATE_STREAM", "CANCEL") if streams else None
    link.hello(**({"types": types} if types else {}))
    if BEHAVIOUR == "before_ack":
        link.say(type="PONG", req_id="1", rss_mb=1, models_loaded=0)
    assert json.loads(link.read())["accept"] is True
    requests = 0
    while True:
        asked = json.loads(link.read())
        kind = asked["type"]
        if kind == "PING" and BEHAVIOUR == "mute_ping":
            time.sleep(FOREVER)
        if kind == "SHUTDOWN" and BEHAVIOUR == "no_shutdown":
            time.sleep(FOREVER)
        if kind == "GENERATE_STREAM" and types:
            generation(link, asked)
            continue
        if kind in ("EMBED_BATCH", "GENERATE"):
            requests += 1
            if BEHAVIOUR == "closes":
                link.read()
                link.sock.close()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(FOREVER)
            if BEHAVIOUR == "dies_with_kin":
                # A child that has all its descriptors lives on.
                subprocess.Popen(["sleep", "600"], pass_fds=[link.sock.fileno()])
                sys.stderr.write("about to die\n")
                sys.stderr.flush()
                os.kill(os.getpid(), signal.SIGSEGV)
            if BEHAVIOUR == "forgets" and requests == 1:
                link.read()
                link.say(type="ERR", req_id=asked["req_id"], code="unknown_model", msg="no such model")
                continue
            if BEHAVIOUR == "forgets_always":
                link.read()
                link.say(type="ERR", req_id=asked["req_id"], code="unknown_model", msg="no such model")
                continue
            if BEHAVIOUR == "answers_then_dies":
                answer(link, asked)
                os.kill(os.getpid(), signal.SIGKILL)
            if BEHAVIOUR == "answers_twice":
                answer(link, asked)
                link.say(type="PONG", req_id=asked["req_id"], rss_mb=1, models_loaded=0)
                continue
            if BEHAVIOUR == "garbage":
                link.frame(b"{not json")
                time.sleep(FOREVER)
            if BEHAVIOUR == "wrong_n":
                link.read()
                link.say(type="VECTORS", req_id=asked["req_id"], dims=1, n=7)
                link.frame(bytes(28))
                continue
        answer(link, asked)


main()
