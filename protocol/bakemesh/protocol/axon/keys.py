"""The names of the headers. Source: protocol/axon-v1.md, section 3."""

from __future__ import annotations

NAME = "name"
TIMEOUT = "timeout"
HEADER_SIZE = "header_size"
TOTAL_SIZE = "total_size"
COMPUTED_BODY_HASH = "computed_body_hash"
TOP_LEVEL = (NAME, TIMEOUT, HEADER_SIZE, TOTAL_SIZE, COMPUTED_BODY_HASH)

PREFIX = "bt_header_"
AXON_PREFIX = "bt_header_axon_"
DENDRITE_PREFIX = "bt_header_dendrite_"
INPUT_OBJ_PREFIX = "bt_header_input_obj_"

# `btauth/1`
BTAUTH_PREFIX = "x-bittensor-"
BTAUTH_VERSION = "X-Bittensor-Version"
BTAUTH_HOTKEY = "X-Bittensor-Hotkey"
BTAUTH_NONCE = "X-Bittensor-Nonce"
BTAUTH_SIGNATURE = "X-Bittensor-Signature"
BTAUTH_RECEIVER = "X-Bittensor-Receiver"
