"""Key files: `new` makes a key pair and its file (rights 0600, none is ever overwritten), `show` tells the
address of one. Files of the SDK's wallets can be read too: WALLET/hotkeys/NAME."""

from __future__ import annotations

import argparse

from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit
from bakemesh.cli.extras import want

EXAMPLE = """\
  bakemesh hotkey new keys/gateway.json
  bakemesh hotkey show ~/.bittensor/wallets/default/hotkeys/default"""


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("verb", choices=("new", "show"), help="make one, tell its address")
    parser.add_argument("file", metavar="FILE", help="the key file")


def run(call: Call) -> int:
    """Does it."""
    want("a key file", "axon", "sr25519")
    from bakemesh.hotkeys import create_hotkey, load_hotkey

    file = call.args.file
    hotkey = create_hotkey(file) if call.args.verb == "new" else load_hotkey(file)
    if call.screen.machine:
        public_key = "0x" + hotkey.public_key.hex()
        call.screen.document({"file": file, "address": hotkey.address, "public_key": public_key})
    else:
        call.screen.say(hotkey.address)
    return Exit.DONE
