"""What single steps of a synapse take: headers made and read, the body hashed.

Peer: the real SDK's methods of the same names, on the same fields, in its own interpreter; both take turns.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import axon_sides as sides
import common
from peers import real_sdk
from peers.echo_routes import Echo, Required

from bakemesh.dendrite import Target
from bakemesh.dendrite.building import build
from bakemesh.protocol.axon import Profile, Synapse

Step = Callable[[], Any]


def sent(synapse: Synapse) -> Synapse:
    """As it is when it goes out; its hash is not known yet, as in the peer."""
    target = Target("127.0.0.1", 8091, sides.ALICE.address)
    request = build(synapse, target, sides.BOB, Profile.SDK, timeout=3.0, nonce=time.time_ns(), uuid="u" * 36)
    request.synapse.set_computed_body_hash("")
    return request.synapse


def steps() -> dict[str, Step]:
    """By the names that the peer's script has too."""
    echo = sent(Echo(text="hello", n=1))
    required = sent(Required(prompt="p", roles=["u"], n=1, temperature=0.5, flags={"a": True}))
    headers, more = echo.to_headers(Profile.SDK), required.to_headers(Profile.SDK)
    return {
        "to_headers": lambda: echo.to_headers(Profile.SDK),
        "to_headers, required fields": lambda: required.to_headers(Profile.SDK),
        "body_hash": lambda: echo.body_hash(Profile.SDK),
        "from_headers": lambda: Echo.from_headers(headers),
        "from_headers, required fields": lambda: Required.from_headers(more),
    }


def took_us(step: Step, count: int) -> float:
    """µs of one."""
    began = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - began) / count * 1e6


async def main(rounds: int, count: int) -> None:
    """Prints what was found."""
    report = common.Report("axon_micro")
    mine = steps()
    for step in mine.values():
        took_us(step, 50)
    found: dict[str, dict[str, list[float]]] = {"ours": {}, "peer": {}}

    async with common.folder() as where, real_sdk.child(where, "real_micro.py") as peer:
        await peer.ready()

        async def ours() -> float:
            for name, step in mine.items():
                found["ours"].setdefault(name, []).append(min(took_us(step, count) for _ in range(3)))
            return 0.0

        async def theirs() -> float:
            await peer.go()
            for name, value in (await peer.said()).items():
                found["peer"].setdefault(name, []).append(value)
            return 0.0

        turns: dict[str, Callable[[], Awaitable[float]]] = {"ours": ours, "peer": theirs}
        await common.rounds(rounds, turns)
    for name in mine:
        report.claim(f"{name}, of the real one's", common.ratio(found["ours"][name], found["peer"][name]))
        report.claim(f"{name}, µs", statistics.median(found["ours"][name]))
        report.claim(f"{name}, the real one's, µs", statistics.median(found["peer"][name]))
    report.numbers = {"took_us": found}
    report.finish()


if __name__ == "__main__":
    args = common.arguments(__doc__, rounds=5, count=2000)
    asyncio.run(main(args.rounds, args.count))
