"""A host of a pool, made to be killed: says the pids of its workers, then keeps them busy for ever.

`pool_host.py FOLDER hang|load`: its workers hang inside a request, or work.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.waiting import eventually
from support.workerpools import pools, share


async def main(folder: Path, mood: str) -> None:
    """Runs until it is killed."""
    async with pools(folder, workers=2) as world:
        pool = world.pool
        await eventually(lambda: all(lane.pid for lane in pool.health().lanes), within=60)
        model = await world.load(**({"hang_on_item": "13"} if mood == "hang" else {}))

        async def busy(number: int) -> None:
            while True:
                await pool.embed(model.key, share([13 if mood == "hang" else 1, number]))

        work = [asyncio.ensure_future(busy(number)) for number in range(4)]
        await eventually(lambda: all(lane.busy_s for lane in pool.health().lanes), within=60)
        print(json.dumps([lane.pid for lane in pool.health().lanes]), flush=True)
        await asyncio.gather(*work)


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
