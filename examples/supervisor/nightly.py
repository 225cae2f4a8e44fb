"""A custom Supervisor: bakes a recipe, follows it, retries a failed step, answers a request for data.

    python examples/supervisor/nightly.py [NATS-URL [NODE]]

Needs a Builder: `bakemesh up` in another terminal. The first step fails once on purpose.
"""

import asyncio
import sys

from bakemesh.protocol.builder.messages import BakePaused, BakeSuccess
from bakemesh.supervisor import Bake, RecipeRejected, Supervisor

RECIPE = """
<recipe name="report" on-failure="hold">
  <code name="fetch" language="sh" retryable="yes"><![CDATA[
    test -e tried || { touch tried; echo no list yet >&2; exit 1; }
    printf '%s\\n' apple pear apple plum > list
  ]]></code>
  <requestdata name="unwanted" into="unwanted" timeout-ms="60000"/>
  <code name="count" language="sh">grep -vxFf unwanted list | sort | uniq -c</code>
</recipe>
"""


async def steer(bake: Bake) -> None:
    retries = 0
    async for status in bake.status():
        print(f"{status.pct:>4} %  {status.summary}")
        if status.request:
            await bake.push(status.request, "plum\n")
        if isinstance(status, BakePaused) and status.code == "held":
            retries += 1
            result = await (bake.retry_step() if retries <= 3 else bake.cancel())
            print(f"        {result.verb}: {result.code}")


async def show(bake: Bake) -> None:
    async for chunk in bake.data():
        print(f"        {chunk.stream}: {chunk.data.decode(errors='replace').rstrip()}")


async def main(nats: str = "nats://127.0.0.1:4222", node: str = "any") -> int:
    async with Supervisor.connect(nats, "nightly") as supervisor:
        try:
            bake = await supervisor.bake(RECIPE, node=node)
        except RecipeRejected as error:
            print(error)
            return 2
        print(f"{bake.recipe_id} on {bake.node}")
        await asyncio.gather(steer(bake), show(bake))
        return 0 if isinstance(await bake.outcome(), BakeSuccess) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
