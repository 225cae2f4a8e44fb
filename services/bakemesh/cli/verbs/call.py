"""Calls a synapse at an axon and prints the answer's JSON, or with --stream its parts as they come.

SYNAPSE is TextPrompt, Embedding, Rerank or Synapse (the ping), or a class of yours as FILE.py:CLASS, which is
run. JSON are its fields. Without --hotkey the request is signed by a key made for it alone."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, Stopped, usage
from bakemesh.cli.extras import want
from bakemesh.cli.inferring import seconds
from bakemesh.cli.synapses import ENVELOPE, class_of, filled

if TYPE_CHECKING:
    from bakemesh.dendrite import Dendrite, Target
    from bakemesh.protocol.axon import Hotkey, Synapse

EXAMPLE = """\
  bakemesh call http://127.0.0.1:8091 TextPrompt '{"prompt": "One, two,"}' --axon-hotkey 5Grw… --stream
  bakemesh call https://axon.example echo.py:Echo '{"text": "hello"}' --axon-hotkey 5Grw… --hotkey me.json"""


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("url", metavar="URL", help="the axon: http://HOST:PORT or https://HOST:PORT")
    parser.add_argument("synapse", metavar="SYNAPSE", help="what is called: a name, or FILE.py:CLASS")
    parser.add_argument("fields", metavar="JSON", nargs="?", default="{}", help="its fields; - reads stdin")
    parser.add_argument("--hotkey", metavar="FILE", help="who asks: a key file; see `bakemesh hotkey`")
    parser.add_argument(
        "--axon-hotkey", metavar="ADDR", default="", help="whose axon it is; only btauth can do without"
    )
    parser.add_argument(
        "--profile",
        choices=("synapse", "sdk", "btauth"),
        default="synapse",
        help="how it is signed: sdk for the axons of the Python SDK 9 and 10; default synapse",
    )
    parser.add_argument("--stream", action="store_true", help="print the parts as they come")
    parser.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", default=12.0, help="give up after so long; default 12"
    )


def run(call: Call) -> int:
    """Calls it."""
    args = call.args
    want("a call", "axon", "sr25519", "aiohttp", "numpy")
    from bakemesh.dendrite import Target, TargetRefused

    try:
        target = Target.of_url(args.url, args.axon_hotkey)
    except TargetRefused as error:
        raise usage(str(error)) from None
    if not target.hotkey and args.profile != "btauth":
        raise usage(f"--profile {args.profile} signs for one axon; name it with --axon-hotkey ADDR")
    text = sys.stdin.read() if args.fields == "-" else args.fields
    synapse = filled(class_of(args.synapse), text, stream=args.stream)
    return link.run(_call(call, target, synapse, _hotkey(args.hotkey)))


async def _call(call: Call, target: Target, synapse: Synapse, hotkey: Hotkey) -> int:
    from bakemesh.dendrite import Dendrite
    from bakemesh.protocol.axon import Profile

    async with Dendrite(hotkey, profile=Profile(call.args.profile)) as dendrite:
        if call.args.stream:
            return await _parts(call, dendrite, target, synapse)
        found = await dendrite.query(target, synapse, call.args.timeout)
    if not found.is_success:
        raise _stopped(found)
    told = found.model_dump(mode="json", exclude=set(ENVELOPE))
    if call.screen.machine:
        told = {
            "status_code": found.dendrite.status_code,
            "process_time": found.dendrite.process_time,
            "answer": told,
        }
    call.screen.document(told)
    return Exit.DONE


async def _parts(call: Call, dendrite: Dendrite, target: Target, synapse: Synapse) -> int:
    from bakemesh.dendrite import CallFailed
    from bakemesh.protocol.axon import StreamingSynapse

    assert isinstance(synapse, StreamingSynapse)
    stream = dendrite.stream(target, synapse, call.args.timeout)
    broken: CallFailed | None = None
    async with stream:
        try:
            async for part in stream:
                if call.screen.machine:
                    call.screen.event("part", part=_plain(part))
                elif isinstance(part, str):
                    print(part, end="", file=call.screen.out, flush=True)
                else:
                    call.screen.say(json.dumps(_plain(part), ensure_ascii=False))
        except CallFailed as error:
            broken = error
    if synapse.Item is str and not call.screen.machine:
        call.screen.say("")
    if broken is not None:
        raise Stopped(_code(broken.status_code), str(broken))
    if call.screen.machine:
        call.screen.event("end", process_time=stream.synapse.dendrite.process_time)
    return Exit.DONE


def _plain(part: Any) -> Any:
    from pydantic import BaseModel

    return part.model_dump(mode="json") if isinstance(part, BaseModel) else part


def _hotkey(file: str | None) -> Hotkey:
    import secrets

    from bakemesh.hotkeys import load_hotkey
    from bakemesh.protocol.axon import Hotkey

    return load_hotkey(file) if file is not None else Hotkey.from_seed(secrets.token_bytes(32))


def _stopped(found: Synapse) -> Stopped:
    told = found.dendrite
    if told.status_code is None:
        return Stopped(Exit.FAILED, "the axon answered 200 and did not say that it was a success")
    return Stopped(_code(told.status_code), f"{told.status_message} ({told.status_code})")


def _code(status: int) -> Exit:
    """408 and 503: nobody answered in time, or there is nobody."""
    return Exit.UNREACHABLE if status in (408, 503) else Exit.FAILED
