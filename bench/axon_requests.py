"""Signed requests at the gateway and at the real axon, and what a call costs the dendrites.

Server side: the same Echo synapse, the same signed bytes (the sdk profile), the same client, 16 and 64 at
once. Peer: the real SDK's axon, as published, and with its slowest look-up cached, so that nothing is won
against one defect. Client side: the real dendrite and ours call the same gateway, 16 at once; CPU of the
calling process.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

import axon_sides as sides
import common
from peers import real_sdk
from peers.echo_routes import Echo

from bakemesh.dendrite import Dendrite, Target
from bakemesh.protocol.axon import Profile

AT_ONCE = (16, 64)
MOST_A_SECOND = {"ours": 6000, "ours, synapse profile": 6000, "peer": 900, "peer, cached": 1500}
CALLS, CALLERS = 1500, 16


def hello() -> Echo:
    """What is sent."""
    return Echo(text="hello", n=1)


async def measured(side: sides.Side, name: str, lanes: int, seconds: float) -> sides.Load:
    """One side once."""
    profile = Profile.SYNAPSE if name == "ours, synapse profile" else Profile.SDK
    each = max(4, int(MOST_A_SECOND[name] * seconds / lanes))
    return await sides.load(side, sides.requests(hello, side.target, profile, lanes, each), seconds)


async def call(port: int, profile: Profile, count: int) -> None:
    """For a role: our dendrite."""
    target = Target("127.0.0.1", port, sides.ALICE.address)
    async with Dendrite(sides.BOB, profile=profile) as dendrite:

        async def calls(left: list[None]) -> None:
            async def caller() -> None:
                while left:
                    left.pop()
                    found = await dendrite.query(target, hello(), 10)
                    assert found.is_success, found.dendrite

            await asyncio.gather(*(caller() for _ in range(CALLERS)))

        async def work() -> None:
            began, cpu = time.perf_counter(), time.process_time()
            await calls([None] * count)
            took, spent = time.perf_counter() - began, time.process_time() - cpu
            common.say(cpu_us=spent / count * 1e6, a_second=count / took)

        await calls([None] * CALLERS * 2)
        common.say_ready()
        await common.on_command(work)


async def clients(where: Path, axon: sides.Side, rounds: int) -> dict[str, list[float]]:
    """CPU µs a call of each dendrite, in turns."""
    async with AsyncExitStack() as stack:
        words = (axon.target.port, axon.target.hotkey, CALLS // 5, CALLERS)
        roles = {
            "ours": await stack.enter_async_context(common.role("dendrite", words[0], "sdk", CALLS)),
            "ours, synapse profile": await stack.enter_async_context(
                common.role("dendrite", words[0], "synapse", CALLS)
            ),
            "peer": await stack.enter_async_context(real_sdk.child(where, "real_dendrite.py", *words)),
        }
        for role in roles.values():
            await role.ready()

        def turn(role: common.Role) -> Callable[[], Awaitable[float]]:
            async def once() -> float:
                await role.go()
                return float((await role.said())["cpu_us"])

            return once

        return await common.rounds(rounds, {name: turn(role) for name, role in roles.items()})


async def main(rounds: int, seconds: int) -> None:
    """Prints what was found."""
    report = common.Report("axon_requests")
    found: dict[str, list[sides.Load]] = {}
    async with common.folder() as where, AsyncExitStack() as stack:
        ours = await stack.enter_async_context(sides.gateway(where, str(sides.ROUTES)))
        servers = {
            "ours": ours,
            "ours, synapse profile": ours,
            "peer": await stack.enter_async_context(sides.real_axon(where)),
            "peer, cached": await stack.enter_async_context(sides.real_axon(where, CACHE_REQUIRED="1")),
        }
        for name, side in servers.items():
            await measured(side, name, 16, 0.3)

        def turn(name: str, lanes: int) -> Callable[[], Awaitable[float]]:
            async def once() -> float:
                done = await measured(servers[name], name, lanes, seconds)
                found.setdefault(f"{name} at {lanes}", []).append(done)
                return done.a_second

            return once

        for lanes in AT_ONCE:
            await common.rounds(rounds, {name: turn(name, lanes) for name in servers})
        cpu = await clients(where, ours, rounds)
    _claims(report, found, cpu)
    report.numbers = {
        "loads": {name: [asdict(each) for each in loads] for name, loads in found.items()},
        "client_cpu_us": cpu,
    }
    report.finish()


def _claims(report: common.Report, found: dict[str, list[sides.Load]], cpu: dict[str, list[float]]) -> None:
    def ratio(ours: str, peer: str, of: str) -> float:
        return common.ratio([getattr(x, of) for x in found[ours]], [getattr(x, of) for x in found[peer]])

    for lanes in AT_ONCE:
        ours, peer, cached = (f"{side} at {lanes}" for side in ("ours", "peer", "peer, cached"))
        what = f"{lanes} at once"
        report.claim(
            f"requests a second of the real axon's, {what}", ratio(ours, peer, "a_second"), at_least=10
        )
        report.claim(f"the same with its look-up cached, {what}", ratio(ours, cached, "a_second"), at_least=3)
        report.claim(f"p99 of the real axon's, {what}", ratio(ours, peer, "p99_ms"), at_most=1 / 3)
        report.claim(f"the same with its look-up cached, {what}", ratio(ours, cached, "p99_ms"))
        report.claim(f"server's CPU a request of the real one's, {what}", ratio(ours, peer, "cpu_us"))
        rate = statistics.median(each.a_second for each in found[ours])
        report.claim(f"requests a second, {what}", rate)
        synapse = ratio(f"ours, synapse profile at {lanes}", ours, "a_second")
        report.claim(f"synapse profile of the sdk profile, {what}", synapse)
    report.claim(
        "client's CPU a call of the real dendrite's", common.ratio(cpu["ours"], cpu["peer"]), at_most=0.2
    )
    report.claim("client's CPU a call, µs", statistics.median(cpu["ours"]))
    report.claim(
        "synapse profile of the sdk profile, client's CPU",
        common.ratio(cpu["ours, synapse profile"], cpu["ours"]),
    )


if __name__ == "__main__":
    args = common.arguments(__doc__, rounds=3, seconds=3)
    loop = common.loops()[-1]
    if args.role == "dendrite":
        port, profile, count = args.operands
        common.run(call(int(port), Profile(profile), int(count)), loop)
        sys.exit(0)
    common.run(main(args.rounds, args.seconds), loop)
