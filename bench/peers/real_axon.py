"""The real axon with an Echo: `real_axon.py PORT`; says `ready` when it listens, ends with its stdin."""

import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.argv, port = sys.argv[:1], int(sys.argv[1])

import bittensor as bt  # noqa: E402
from bittensor_wallet import Keypair, Wallet  # noqa: E402
from real_classes import Echo  # noqa: E402


def echo(synapse: Echo) -> Echo:
    synapse.reply = synapse.text
    return synapse


alice = Keypair.create_from_uri("//Alice")
wallet = Wallet(name="axon", hotkey="default", path=tempfile.mkdtemp(dir=os.environ["HOME"]))
wallet.set_hotkey(alice, encrypt=False, overwrite=True)
wallet.set_coldkeypub(alice, encrypt=False, overwrite=True)
axon = bt.Axon(wallet=wallet, port=port, ip="127.0.0.1", external_ip="127.0.0.1", external_port=port)
axon.attach(echo)
axon.start()
for _ in range(1000):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        break
    except OSError:
        time.sleep(0.02)
print("ready", flush=True)
print(json.dumps({"hotkey": alice.ss58_address}), flush=True)
sys.stdin.read()
os._exit(0)  # its server's thread does not end by itself
