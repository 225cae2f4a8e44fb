"""A text in parts through the gateway: how much later its first byte is, and how many tokens a second.

Peer: the same module asked over the bus without the gateway, by the client that the gateway has. The engine
is the fake one, so that the tokens are no work: as fast as it can, and ones that take 10 ms each.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import axon_sides as sides
import common
import synapse_module

from bakemesh.dendrite import Dendrite
from bakemesh.inference import Inference, Token
from bakemesh.protocol.axon import Profile, TextPrompt

ALIAS = "chat"
PROMPT = "one two three"
DEADLINE_S = 60.0


class Both:
    """The two sides, and what each stream took: ms to its first part, tokens a second of the whole."""

    def __init__(self, direct: Inference, dendrite: Dendrite, axon: sides.Side, tokens: int) -> None:
        self._direct, self._dendrite, self._axon, self._tokens = direct, dendrite, axon, tokens
        self.first_ms: dict[str, list[float]] = {"ours": [], "peer": []}

    async def alone(self) -> float:
        """Tokens a second of the module."""
        began = time.perf_counter()
        first, count = 0.0, 0
        options = {"model": ALIAS, "max_tokens": self._tokens, "deadline_s": DEADLINE_S}
        async with aclosing(self._direct.stream(PROMPT, **options)) as found:
            async for part in found:
                if isinstance(part, Token):
                    first = first or time.perf_counter()
                    count += 1
        return self._told("peer", began, first, count)

    async def through(self) -> float:
        """Tokens a second of the gateway."""
        began = time.perf_counter()
        first, count = 0.0, 0
        asked = TextPrompt(prompt=PROMPT, max_tokens=self._tokens, temperature=0, stream=True)
        async with self._dendrite.stream(self._axon.target, asked, DEADLINE_S) as found:
            async for _ in found:
                first = first or time.perf_counter()
                count += 1
        return self._told("ours", began, first, count)

    def _told(self, side: str, began: float, first: float, count: int) -> float:
        if count != self._tokens:
            raise RuntimeError(f"{side}: {count} tokens came, {self._tokens} were asked for")
        self.first_ms[side].append((first - began) * 1e3)
        return count / (time.perf_counter() - began)


async def main(rounds: int, tokens: int) -> None:
    """Prints what was found."""
    report = common.Report("axon_streaming")
    for slow_ms, name in ((0, "as fast as they come"), (10, "10 ms each")):
        count = tokens if not slow_ms else tokens // 20
        async with common.folder() as where:
            model = where / "chat.fake"
            model.write_text(json.dumps({"kind": "generate"}))
            flags = ("--engine=fake", "--workers=1", f"--model={ALIAS}.endless=yes")
            flags += (f"--model={ALIAS}.slow_ms={slow_ms}",) if slow_ms else ()
            async with (
                synapse_module.running(where, ALIAS, model, *flags) as module,
                sides.gateway(where, "--nats", module.url, "--chat-model", ALIAS) as axon,
                Inference.connect(module.url, name="bench") as direct,
                Dendrite(sides.BOB, profile=Profile.SYNAPSE) as dendrite,
            ):
                both = Both(direct, dendrite, axon, count)
                await both.alone()
                await both.through()
                both.first_ms = {"ours": [], "peer": []}
                turns: dict[str, Callable[[], Awaitable[float]]] = {"ours": both.through, "peer": both.alone}
                rates = await common.rounds(rounds, turns)
        later = [ours - peer for ours, peer in zip(*both.first_ms.values(), strict=True)]
        report.claim(
            f"tokens a second of the module's alone, {name}", common.ratio(rates["ours"], rates["peer"])
        )
        report.claim(f"tokens a second through the gateway, {name}", statistics.median(rates["ours"]))
        if slow_ms:  # else all parts are there before the first one is read
            report.claim(f"the first byte comes later by, ms, {name}", statistics.median(later))
        report.numbers[name] = {"tokens_a_second": rates, "first_ms": both.first_ms}
    report.finish()


if __name__ == "__main__":
    args = common.arguments(__doc__, rounds=7, tokens=2000)
    common.run(main(args.rounds, args.tokens), common.loops()[-1])
