"""Hotkeys in files: reading and making them.

A file holds one key pair as JSON, unencrypted, as the SDK's wallets do; so that it stays secret, a file that
anybody but its owner may read is refused. Ours can be read by the SDK and the other way round.
Left out: coldkeys, encrypted key files, mnemonics.
"""

from bakemesh.hotkeys.document import HotkeyRefused
from bakemesh.hotkeys.files import create_hotkey, load_hotkey, wallet_hotkey

__all__ = ["HotkeyRefused", "create_hotkey", "load_hotkey", "wallet_hotkey"]
