"""The names of a TerminalInfo's fields, as they stand behind a prefix. Source: axon-v1.md, section 3."""

from __future__ import annotations

STATUS_CODE = "status_code"
STATUS_MESSAGE = "status_message"
PROCESS_TIME = "process_time"
IP = "ip"
PORT = "port"
VERSION = "version"
NONCE = "nonce"
UUID = "uuid"
HOTKEY = "hotkey"
SIGNATURE = "signature"
