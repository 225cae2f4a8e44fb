"""Runs in the interpreter of the real SDK, as a child of a test: its dendrite, or its axon.

    realsdk_child.py dendrite    a JSON line in: what to call; a JSON line out: how it ended
    realsdk_child.py axon PORT   serves until its stdin is closed

Lines of the test's own begin with a mark, since the SDK logs to the same stdout.
"""

import asyncio
import importlib.util
import json
import os
import socket
import sys
import tempfile
import time
import typing
from pathlib import Path

sys.argv, MODE = sys.argv[:1], sys.argv[1:]
os.environ["BT_NO_PARSE_CLI_ARGS"] = "true"

import bittensor as bt  # noqa: E402
import numpy as np  # noqa: E402
from bittensor.core.tensor import dtypes  # noqa: E402
from bittensor.utils import networking  # noqa: E402
from bittensor_wallet import Keypair, Wallet  # noqa: E402

dtypes.torch = True  # without torch its look-up of torch's types fails, and with it every tensor
networking.get_external_ip = lambda: "192.0.2.10"  # else it asks strangers on the internet

spec = importlib.util.spec_from_file_location("sdkclasses", Path(__file__).with_name("sdkclasses.py"))
sdkclasses = importlib.util.module_from_spec(spec)
sys.modules["sdkclasses"] = sdkclasses
spec.loader.exec_module(sdkclasses)
MARK = "@@ "


def say(value):
    print(MARK + json.dumps(value), flush=True)


class Chunks:
    """How a subnet's streaming class reads its answer."""

    async def process_streaming_response(self, response):
        text = ""
        async for chunk in response.content.iter_any():
            text += chunk.decode()
            yield chunk.decode()
        self.completion = text

    def extract_response_json(self, response):
        headers = dict(response.headers)

        def ends(prefix):
            return {key[len(prefix) :]: value for key, value in headers.items() if key.startswith(prefix)}

        return {
            "name": headers.get("name", ""),
            "timeout": float(headers.get("timeout", 0)),
            "total_size": int(headers.get("total_size", 0)),
            "header_size": int(headers.get("header_size", 0)),
            "dendrite": ends("bt_header_dendrite_"),
            "axon": ends("bt_header_axon_"),
            "prompt": self.prompt,
            "completion": self.completion,
        }


KINDS = sdkclasses.classes(bt.Synapse, bt.StreamingSynapse, bt.Tensor, Chunks)
Echo, Unhashed, Required, Chat = (KINDS[name] for name in ("Echo", "Unhashed", "Required", "Chat"))
Array, Private, Boom, Slow, Tok = (KINDS[name] for name in ("Array", "Private", "Boom", "Slow", "Tok"))
FORGER = Keypair.create_from_uri("//Charlie")


class Forging(bt.Dendrite):
    """Claims a hotkey whose key it has not."""

    def preprocess_synapse_for_request(self, *args, **kwargs):
        synapse = super().preprocess_synapse_for_request(*args, **kwargs)
        synapse.dendrite.signature = "0x" + FORGER.sign("anything").hex()
        return synapse


def told(synapse, chunks):
    own = set(type(synapse).model_fields) - set(bt.Synapse.model_fields)
    return {
        "status_code": synapse.dendrite.status_code,
        "status_message": synapse.dendrite.status_message,
        "axon_status_code": synapse.axon.status_code,
        "process_time": synapse.dendrite.process_time,
        "flags": {
            name: bool(getattr(synapse, name))
            for name in ("is_success", "is_timeout", "is_blacklist", "failed_verification")
        },
        "fields": {name: synapse.model_dump(mode="json")[name] for name in own},
        "chunks": chunks,
    }


async def call(dendrites, asked):
    kind = KINDS[asked["kind"]]
    fields = dict(asked["fields"])
    if asked.get("array") is not None:
        fields["given"] = bt.Tensor.serialize(np.array(asked["array"], dtype=asked["dtype"]))
    axon = bt.AxonInfo(
        version=1,
        ip="127.0.0.1",
        port=asked["port"],
        ip_type=4,
        hotkey=asked["hotkey"],
        coldkey=asked["hotkey"],
        protocol=4,
        placeholder1=0,
        placeholder2=0,
    )
    dendrite = dendrites[bool(asked.get("forged"))]
    synapse, timeout = kind(**fields), asked.get("timeout", 10.0)
    chunks = []
    if issubclass(kind, bt.StreamingSynapse):
        async for part in await dendrite.forward(axon, synapse, timeout, deserialize=False, streaming=True):
            if isinstance(part, bt.Synapse):
                found = part
            else:
                chunks.append(part)
    else:
        found = await dendrite.forward(axon, synapse, timeout, deserialize=False)
    answer = told(found, chunks)
    if asked.get("array") is not None and found.doubled is not None:
        answer["doubled"] = found.doubled.deserialize().tolist()
        answer["dtype"] = str(found.doubled.deserialize().dtype)
    return answer


async def be_dendrite():
    bob = Keypair.create_from_uri("//Bob")
    dendrites = {False: bt.Dendrite(wallet=bob), True: Forging(wallet=bob)}
    say("ready")
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        found = await asyncio.gather(*(call(dendrites, asked) for _ in range(asked.get("times", 1))))
        say(found if "times" in asked else found[0])
    for dendrite in dendrites.values():
        await dendrite.aclose_session()


def be_axon(port):
    wallet = Wallet(name="axon", hotkey="default", path=tempfile.mkdtemp(dir=os.environ["HOME"]))
    alice = Keypair.create_from_uri("//Alice")
    wallet.set_hotkey(alice, encrypt=False, overwrite=True)
    wallet.set_coldkeypub(alice, encrypt=False, overwrite=True)
    axon = bt.Axon(wallet=wallet, port=port, ip="127.0.0.1", external_ip="127.0.0.1", external_port=port)

    def replied(synapse):
        synapse.reply = getattr(synapse, "text", None) or synapse.prompt
        return synapse

    def echo(synapse: Echo) -> Echo:
        return replied(synapse)

    def unhashed(synapse: Unhashed) -> Unhashed:
        return replied(synapse)

    def required(synapse: Required) -> Required:
        return replied(synapse)

    def chat(synapse: Chat) -> Chat:
        synapse.best = max(synapse.turns, key=lambda turn: turn.weight)
        synapse.all_of_them = list(reversed(synapse.turns))
        return synapse

    def array(synapse: Array) -> Array:
        synapse.doubled = bt.Tensor.serialize(synapse.given.deserialize() * 2)
        return synapse

    def private(synapse: Private) -> Private:
        return synapse

    async def listed(synapse: Private) -> typing.Tuple[bool, str]:  # noqa: UP006 - it compares
        return True, "not registered"

    def boom(synapse: Boom) -> Boom:
        raise ValueError("handler exploded")

    async def slow(synapse: Slow) -> Slow:
        await asyncio.sleep(synapse.seconds)
        return synapse

    async def tok(synapse: Tok) -> bt.StreamingSynapse.BTStreamingResponse:
        async def streamer(send):
            for part in ("hel", "lö ", "wor", "ld"):
                await send({"type": "http.response.body", "body": part.encode(), "more_body": True})

        return synapse.create_streaming_response(streamer)

    for handler in (echo, unhashed, required, chat, array, boom, slow, tok):
        axon.attach(handler)
    axon.attach(private, blacklist_fn=listed)
    axon.start()
    until = time.monotonic() + 30
    while True:  # it returns before it listens
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert time.monotonic() < until, "the axon does not listen"
            time.sleep(0.02)
    say("ready")
    sys.stdin.read()
    axon.stop()


if MODE[0] == "dendrite":
    asyncio.run(be_dendrite())
else:
    be_axon(int(MODE[1]))
    os._exit(0)  # its server's thread does not end by itself
