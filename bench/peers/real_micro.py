"""What single steps of the real SDK take: for each `go` the µs of each, best of a few runs.

The same names and the same inputs as in ours (`axon_micro.py`).
"""

import json
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.argv = sys.argv[:1]

import bittensor as bt  # noqa: E402
from real_classes import Echo, Required, info, key  # noqa: E402


def steps():
    dendrite = bt.Dendrite(wallet=key())
    axon = info(8091, key().ss58_address)
    echo = dendrite.preprocess_synapse_for_request(axon, Echo(text="hello", n=1), 3.0)
    required = dendrite.preprocess_synapse_for_request(
        axon, Required(prompt="p", roles=["u"], n=1, temperature=0.5, flags={"a": True}), 3.0
    )
    headers, more = echo.to_headers(), required.to_headers()
    return {
        "to_headers": echo.to_headers,
        "to_headers, required fields": required.to_headers,
        "body_hash": lambda: echo.body_hash,
        "from_headers": lambda: Echo.from_headers(headers),
        "from_headers, required fields": lambda: Required.from_headers(more),
    }


def took_us(step, count=100):
    began = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - began) / count * 1e6


STEPS = steps()
for step in STEPS.values():
    took_us(step, 20)
print("ready", flush=True)
for _ in sys.stdin:
    print(
        json.dumps({name: min(took_us(step) for _ in range(3)) for name, step in STEPS.items()}), flush=True
    )
