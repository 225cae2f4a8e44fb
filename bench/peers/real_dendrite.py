"""The real dendrite: `real_dendrite.py PORT HOTKEY COUNT CONCURRENCY`; for each `go` that many calls, and
what they cost this process.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.argv, words = sys.argv[:1], sys.argv[1:]

import bittensor as bt  # noqa: E402
from real_classes import Echo, info, key  # noqa: E402


async def main(port, hotkey, count, concurrency):
    dendrite, axon = bt.Dendrite(wallet=key()), info(port, hotkey)

    async def calls(left):
        async def caller():
            while left:
                left.pop()
                found = await dendrite.forward(axon, Echo(text="hello", n=1), timeout=10, deserialize=False)
                assert found.dendrite.status_code == 200, found.dendrite

        await asyncio.gather(*(caller() for _ in range(concurrency)))

    await calls([None] * concurrency * 2)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        began, cpu = time.perf_counter(), time.process_time()
        await calls([None] * count)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        print(json.dumps({"cpu_us": cpu / count * 1e6, "a_second": count / took}), flush=True)


asyncio.run(main(int(words[0]), words[1], int(words[2]), int(words[3])))
