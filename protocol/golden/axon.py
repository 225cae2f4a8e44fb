"""Vectors of the signed edge (protocol/axon-v1.md), for an implementation in any language.

Nothing here is made by the code that they test: hashes are hashlib's, signatures were recorded from
the real SDK with the development keys of every Substrate chain, headers and streams are written as they go on
the wire.
"""

from __future__ import annotations

import hashlib
from typing import Any

ALICE = "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"
BOB = "5FHneW46xGXgs5mUiveU4sbTyGBzmstUspZC92UhjJM694ty"
CHARLIE = "5FLSigC9HGRKVhB9FiEo4Y3koPsNmBmLJbpXg2mp1hXcS59Y"
UUID = "5ecbd69c-1cec-11ee-b0dc-e29ce36fec1a"
EMPTY = "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a"
ECHO = "c953ab62da4e0aebedede802d62c02e2e6d66bf43aec4d53ea51a2492e8b8a04"
D = "bt_header_dendrite_"

# -- headers: as they came, and the map that they are; None: refused

HEADERS: list[tuple[str, list[tuple[str, str]], dict[str, str] | None]] = [
    (
        "names without case, spaces around a value",
        [("Name", "Echo"), ("TIMEOUT", " 12.0\t")],
        {"name": "Echo", "timeout": "12.0"},
    ),
    (
        "hyphens for underscores",
        [("BT-Header-Dendrite-Hotkey", BOB), ("computed-body-hash", EMPTY)],
        {D + "hotkey": BOB, "computed_body_hash": EMPTY},
    ),
    ("others keep their hyphens", [("user-agent", "u"), ("x_y", "z")], {"user-agent": "u", "x_y": "z"}),
    ("of others the first counts", [("accept", "a"), ("Accept", "b")], {"accept": "a"}),
    ("twice", [(D + "hotkey", BOB), (D + "hotkey", CHARLIE)], None),
    ("twice with one value", [(D + "hotkey", BOB), (D + "hotkey", BOB)], None),
    ("twice in two spellings", [(D + "hotkey", BOB), ("bt-header-dendrite-hotkey", CHARLIE)], None),
    ("the hash twice", [("computed_body_hash", EMPTY), ("Computed-Body-Hash", ECHO)], None),
    ("the name twice", [("name", "Echo"), ("Name", "Other")], None),
    ("btauth twice", [("X-Bittensor-Nonce", "1"), ("x-bittensor-nonce", "1")], None),
    ("the length twice", [("content-length", "1"), ("Content-Length", "2")], None),
    ("a line break in a value", [(D + "uuid", "a\r\nb")], None),
    ("a NUL in a value", [(D + "uuid", "a\0b")], None),
]

TERMINALS: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    ("nothing", {}, {}),
    (
        "every field",
        {
            "status_code": "200",
            "status_message": "Success",
            "process_time": "0.25",
            "ip": "::1",
            "port": "8091",
            "version": "10005000",
            "nonce": "18446744073709551615",
            "uuid": UUID,
            "hotkey": BOB,
            "signature": "0x00",
        },
        {
            "status_code": 200,
            "status_message": "Success",
            "process_time": 0.25,
            "ip": "::1",
            "port": 8091,
            "version": 10005000,
            "nonce": 18446744073709551615,
            "uuid": UUID,
            "hotkey": BOB,
            "signature": "0x00",
        },
    ),
    (
        "outside the integer type",
        {"status_code": "65536", "port": "65536", "version": "4294967296", "nonce": "18446744073709551616"},
        {},
    ),
    (
        "no numbers",
        {"status_code": "", "port": "-1", "version": "1.0", "nonce": "1_000", "process_time": "fast"},
        {},
    ),
    ("one that cannot be read beside one that can", {"port": "x", "ip": "10.0.0.1"}, {"ip": "10.0.0.1"}),
    ("a field that is none", {"colour": "red"}, {}),
]

REASONS: list[tuple[str, str]] = [
    ("not registered", "not registered"),
    ("100%", "100%25"),
    ("a\r\nSet-Cookie: b", "a%0D%0ASet-Cookie: b"),
    ("é🌍", "%C3%A9%F0%9F%8C%8D"),
    ("x" * 300, "x" * 256),
    ("x" * 254 + "é", "x" * 254),
    ("  a ", "a"),
]

# -- hashes

TEXTS = ["", "abc", "hello", '{"prompt":"hello"}']
# What Python writes of the values that a class declares, in their order.
DECLARED: list[tuple[str, list[str]]] = [
    ("nothing declared", []),
    ("an empty text", [""]),
    ("text, number", ["a", "1"]),
    ("number, text", ["1", "a"]),
    ("truth, nothing, floats", ["True", "None", "1.0", "1e-05"]),
    ("a list and a dict", ["['a', \"b'c\"]", "{'b': 1, 'a': {'z': None}}"]),
    ("letters of all kinds", ['héllo 🌍 \n"q"']),
]

# -- signatures

SIGNED: list[tuple[str, str, str, str, bool]] = [
    (
        "a request",
        BOB,
        f"1700000000000000000.{BOB}.{ALICE}.{UUID}.{EMPTY}",
        "0x684bd18225827912ba8c234acb4e57be3072cdc332ede38aec95f0661fb3ff56"
        "640a2293cec1c92450cc48edc496cfe00a58fbe3df3cb5cebfefec8d88a75388",
        True,
    ),
    (
        "a request with a body",
        BOB,
        f"1700000000000000001.{BOB}.{ALICE}.{UUID}.{ECHO}",
        "0x6e6ab94160f82a40f110b7e49c96fb7b7ee39d36430e2ac8b4465da6ed7c977e"
        "1e5fe097c16faceefd15d413af72dd0824c884a5fa26ee343995949fc8df5985",
        True,
    ),
    (
        "an axon under an error",
        ALICE,
        f"1700000000000000002.{BOB}.{ALICE}.c7e23180-ed04-11f1-b38d-02fc00000001",
        "0x4c66ac459cf38cf64ad3b4bc6bf9daf75c6a5f249f550ec01482c0a2ef722562"
        "01115545f09f6bf81403a95d9f2442038f63790b3607561d5dca5e5fa7612d8c",
        True,
    ),
    (
        "wrapped in <Bytes>, as browser wallets do",
        BOB,
        f"1700000000000000000.{BOB}.{ALICE}.{UUID}.{EMPTY}",
        "0x282d8eb1f4ba0592d20dce495c7140cab1173f834a13e8d13ca1c657457602488"
        "a239754d14c3dd007149b87fbeeec058f751962d7a4bbe1a9bf0b5274102080",
        True,
    ),
]

BTAUTH: list[tuple[str, str, str, int, str | None, str]] = [
    (
        "POST",
        "/generate",
        '{"prompt": "hello"}',
        1700000000000000000,
        ALICE,
        "0xc093a37a45e9d869cc15ed0c8ecc946bafa127807cb18620ec7c49fbbbe9ef61"
        "24679e829f61b047b12f7a7d035221776205618cb63511e4112c2b96f58fd48a",
    ),
    (
        "POST",
        "/v1/x?a=1",
        "",
        1700000000000000001,
        ALICE,
        "0xd4c6bf46dd8a965912c8cb16e3f6f8eca95dfce70be798910034967b512a9f21"
        "3a57f458e476016e2ccee67262b31dd3258584528890da8f42ffb1be6423018a",
    ),
    (
        "POST",
        "/generate",
        "abc",
        1700000000000000002,
        None,
        "0x9e5221b4f8c2271fdc3e9f891462dca6f95024edb8e98d8a4dcdcfdb7790e526"
        "f9279a235cef0c362d5713110b92f9c8bd771b8adbfb431258e136042df9a488",
    ),
]

# -- nonces: (nonce, now in ns, fresh)

NOW = 1_800_000_000_000_000_000
NONCES: list[tuple[str, int, bool]] = [
    ("now, ns", NOW, True),
    ("now, ms", NOW // 10**6, True),
    ("10 s old", NOW - 10 * 10**9, True),
    ("just older", NOW - 10 * 10**9 - 10**6, False),
    ("2 s ahead", NOW + 2 * 10**9, True),
    ("just further", NOW + 2 * 10**9 + 10**6, False),
    ("10 s old, ms", NOW // 10**6 - 10_000, True),
    ("just older, ms", NOW // 10**6 - 10_001, False),
    ("2 s ahead, ms", NOW // 10**6 + 2_000, True),
    ("just further, ms", NOW // 10**6 + 2_001, False),
    ("now, s", NOW // 10**9, False),
    ("now, µs", NOW // 10**3, False),
    ("0", 0, False),
    ("the largest", 2**64 - 1, False),
]

# -- streams: bytes, and the events in them

STREAMS: list[tuple[str, bytes, list[tuple[str, bytes]]]] = [
    ("one event", b"data: hello\n\n", [("message", b"hello")]),
    ("two lines are one event", b"data: a\ndata: b\n\n", [("message", b"a\nb")]),
    (
        "every line end",
        b"data:a\r\rdata:b\r\n\r\ndata:c\n\n",
        [("message", each) for each in (b"a", b"b", b"c")],
    ),
    ("one space goes", b"data:  a \n\n", [("message", b" a ")]),
    ("comments and other fields", b": c\nid: 1\nretry: 5\ndata: a\n\n", [("message", b"a")]),
    ("the end", b"data: a\n\ndata: [DONE]\n\n", [("message", b"a"), ("message", b"[DONE]")]),
    (
        "a text that is the end's word",
        b"data: [DO\n\ndata: NE]\n\n",
        [("message", b"[DO"), ("message", b"NE]")],
    ),
    ("an error", b"event: error\ndata: why\n\n", [("error", b"why")]),
    ("a name without data", b"event: error\n\ndata: a\n\n", [("message", b"a")]),
    ("empty", b"data\n\ndata\ndata\n\n", [("message", b""), ("message", b"\n")]),
    ("cut short", b"data: a\n\ndata: b\n", [("message", b"a")]),
    ("a byte order mark", b"\xef\xbb\xbfdata: a\n\n", [("message", b"a")]),
    ("a mark that is late", b"\n\xef\xbb\xbfdata: a\n\ndata: b\n\n", [("message", b"b")]),
]
# What an encoder writes of a text; the name is None for a part.
ENCODED: list[tuple[str, str | None, bytes]] = [
    ("hello", None, b"data: hello\n\n"),
    ("", None, b"data: \n\n"),
    ("a\nb", None, b"data: a\ndata: b\n\n"),
    ("a\r\nb\rc", None, b"data: a\ndata: b\ndata: c\n\n"),
    (" a", None, b"data:  a\n\n"),
    ("[DONE]", None, b"data: [DO\n\ndata: NE]\n\n"),
    ("[DONE]\n", None, b"data: [DONE]\ndata: \n\n"),
    ("why", "error", b"event: error\ndata: why\n\n"),
    ("é", None, "data: é\n\n".encode()),
]


def _sha3(data: bytes) -> str:
    return hashlib.sha3_256(data).hexdigest()


def _btauth(method: str, target: str, body: str, nonce: int, receiver: str | None, signature: str) -> Any:
    digest = hashlib.sha256(body.encode()).hexdigest()
    payload = ["btauth/1", "sr25519", method, target, digest, str(nonce), BOB, receiver or "-"]
    headers = {
        "X-Bittensor-Version": "1",
        "X-Bittensor-Hotkey": BOB,
        "X-Bittensor-Nonce": str(nonce),
        "X-Bittensor-Signature": signature,
    }
    if receiver is not None:
        headers["X-Bittensor-Receiver"] = receiver
    return {
        "method": method,
        "target": target,
        "body": body,
        "headers": headers,
        "payload": "\n".join(payload),
    }


def files() -> dict[str, Any]:
    """The vectors, by the name of their file."""
    return {
        "axon-headers.json": {
            "normal": [
                {"name": name, "headers": [list(each) for each in raw], "map": found}
                for name, raw, found in HEADERS
            ],
            "terminals": [
                {"name": name, "headers": {D + key: value for key, value in sent.items()}, "terminal": read}
                for name, sent, read in TERMINALS
            ],
            "reasons": [{"reason": reason, "header": header} for reason, header in REASONS],
        },
        "axon-hashes.json": {
            "bodies": [{"text": text, "body_hash": _sha3(text.encode())} for text in TEXTS],
            "declared": [
                {
                    "name": name,
                    "strs": strs,
                    "body_hash": _sha3("".join(_sha3(each.encode()) for each in strs).encode()),
                }
                for name, strs in DECLARED
            ],
        },
        "axon-signing.json": {
            "messages": [
                {
                    "nonce": 1700000000000000000,
                    "dendrite_hotkey": BOB,
                    "axon_hotkey": ALICE,
                    "uuid": UUID,
                    "body_hash": EMPTY,
                    "message": SIGNED[0][2],
                }
            ],
            "signatures": [
                {"name": name, "address": address, "message": message, "signature": signature, "verifies": ok}
                for name, address, message, signature, ok in [*SIGNED, *_spoiled()]
            ],
            "btauth": [_btauth(*row) for row in BTAUTH],
            "nonces": [
                {"name": name, "nonce": nonce, "now_ns": NOW, "fresh": fresh} for name, nonce, fresh in NONCES
            ],
        },
        "axon-streams.json": {
            "decoded": [
                {
                    "name": name,
                    "hex": raw.hex(),
                    "events": [{"name": event, "data": data.decode()} for event, data in events],
                }
                for name, raw, events in STREAMS
            ],
            "encoded": [{"text": text, "event": event, "hex": raw.hex()} for text, event, raw in ENCODED],
        },
    }


def _spoiled() -> list[tuple[str, str, str, str, bool]]:
    _, address, message, signature, _ = SIGNED[0]
    return [
        ("another key", CHARLIE, message, signature, False),
        ("another message", address, message + "0", signature, False),
        ("another signature", address, message, SIGNED[1][3], False),
        ("no 0x", address, message, signature[2:], False),
        ("too short", address, message, signature[:-2], False),
        ("no address", "5Nobody", message, signature, False),
        ("an address with its checksum changed", address[:-1] + "z", message, signature, False),
    ]
