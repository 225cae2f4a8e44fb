"""The messages' headers: one frozen value a type, read from and written to JSON.

A header of another type is Unknown; one of a known type that lacks a field, or has a wrong one, raises
BadHeader, which names it. Fields that a type does not have are passed over: additions are new fields and new
types. Field names are the wire's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

from bakemesh.protocol.worker.errors import BadHeader, HeaderBroken

VERSION = 1
ADDED_TYPES = ("GENERATE_STREAM", "CANCEL", "MODEL_INFO")
POOLINGS = ("mean", "cls", "last", "rank")
FINISH_REASONS = ("stop", "length", "grammar_complete", "cancelled")
CODES = (
    "artifact_invalid",
    "oom",
    "config_invalid",
    "unknown_type",
    "inference_failed",
    "unknown_model",
    "bad_request",
    "cancelled",
)
MAX_ITEMS = 256
MAX_REQ_ID = 256  # characters: an ERR that echoes it fits into the smallest max_frame
_MOST = (1 << 53) - 1  # what every JSON reader keeps exact
_MOST_RAW = 16


class Header:
    """Base of all headers. `RAW`: how many raw frames follow one of this type.

    None has slots: those make each class twice, and every start of a worker pays for it.
    """

    TYPE: ClassVar[str] = ""
    RAW: ClassVar[int] = 0


@dataclass(frozen=True, kw_only=True)
class Hello(Header):
    """Worker → host, the first word. `types`: what it can beyond the seed's; absent: nothing.

    `engine`: `{name, version, build_flags}` (a published worker's `engine.engine` is read as the name).
    """

    TYPE: ClassVar[str] = "HELLO"
    v: int
    nonce: str
    engine: dict[str, Any]
    pid: int
    max_frame: int
    types: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HelloAck(Header):
    """Host → worker: taken; `max_frame` is what both keep to from here on."""

    TYPE: ClassVar[str] = "HELLO_ACK"
    v: int
    accept: bool
    max_frame: int


@dataclass(frozen=True, kw_only=True)
class Load(Header):
    """Loads an artifact. `runtime_config`: text to text."""

    TYPE: ClassVar[str] = "LOAD"
    req_id: str
    artifact_path: str
    artifact_digest: str
    format: str
    runtime_config: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Loaded(Header):
    """The answer to LOAD. `model_ref` is the worker's own name of the model."""

    TYPE: ClassVar[str] = "LOADED"
    req_id: str
    model_ref: str
    dims: int
    cold_load_ms: int


@dataclass(frozen=True, kw_only=True)
class EmbedBatch(Header):
    """`items`: 1 to 256 of `{id, n_tokens}`, n_tokens from 1.

    The raw frame: their token ids, i32 LE, one after the other.
    """

    TYPE: ClassVar[str] = "EMBED_BATCH"
    RAW: ClassVar[int] = 1
    req_id: str
    model_ref: str
    pooling: str
    normalize: bool
    items: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Vectors(Header):
    """The answer to EMBED_BATCH. The raw frame: n × dims f32 LE, rows in the order of the items."""

    TYPE: ClassVar[str] = "VECTORS"
    RAW: ClassVar[int] = 1
    req_id: str
    dims: int
    n: int
    ids: list[Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Rerank(Header):
    """`candidates`: 1 to 256 of `{n_tokens}`, from 1.

    The raw frame: the query's ids, then theirs; no special tokens.
    """

    TYPE: ClassVar[str] = "RERANK"
    RAW: ClassVar[int] = 1
    req_id: str
    model_ref: str
    query_n_tokens: int
    candidates: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Scores(Header):
    """The answer to RERANK. The raw frame: one f32 LE a candidate, in their order."""

    TYPE: ClassVar[str] = "SCORES"
    RAW: ClassVar[int] = 1
    req_id: str


@dataclass(frozen=True, kw_only=True)
class Generate(Header):
    """Greedy generation. The raw frame: the prompt's ids, used as they come."""

    TYPE: ClassVar[str] = "GENERATE"
    RAW: ClassVar[int] = 1
    req_id: str
    model_ref: str
    max_tokens: int
    grammar: str | None = None


@dataclass(frozen=True, kw_only=True)
class GenerateStream(Header):
    """Generation that is sampled and told token by token."""

    TYPE: ClassVar[str] = "GENERATE_STREAM"
    RAW: ClassVar[int] = 1
    req_id: str
    model_ref: str
    max_tokens: int
    grammar: str | None = None
    json_schema: str | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Token(Header):
    """One piece of a stream, `index` from 0. Whole characters: partial UTF-8 is held back."""

    TYPE: ClassVar[str] = "TOKEN"
    req_id: str
    index: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Text(Header):
    """The end of a generation, with the whole text. `n_gen` does not count the end token."""

    TYPE: ClassVar[str] = "TEXT"
    req_id: str
    text: str
    n_prompt: int
    n_gen: int
    finish_reason: str


@dataclass(frozen=True, kw_only=True)
class Cancel(Header):
    """Ends the request `target`. It has no answer of its own; `req_id` is for an ERR that says "cannot"."""

    TYPE: ClassVar[str] = "CANCEL"
    req_id: str
    target: str


@dataclass(frozen=True, kw_only=True)
class ModelInfo(Header):
    """Asks what a loaded model is."""

    TYPE: ClassVar[str] = "MODEL_INFO"
    req_id: str
    model_ref: str


@dataclass(frozen=True, kw_only=True)
class Model(Header):
    """The answer to MODEL_INFO."""

    TYPE: ClassVar[str] = "MODEL"
    req_id: str
    architecture: str
    dims: int
    n_vocab: int
    n_ctx_train: int
    pooling: str
    rank_head: bool
    chat_template: str | None = None


@dataclass(frozen=True, kw_only=True)
class Unload(Header):
    """Gives a model's memory back. One that is not loaded is unloaded already."""

    TYPE: ClassVar[str] = "UNLOAD"
    req_id: str
    model_ref: str


@dataclass(frozen=True, kw_only=True)
class Unloaded(Header):
    """The answer to UNLOAD."""

    TYPE: ClassVar[str] = "UNLOADED"
    req_id: str


@dataclass(frozen=True, kw_only=True)
class Ping(Header):
    """Asks an idle worker whether it is well."""

    TYPE: ClassVar[str] = "PING"
    req_id: str


@dataclass(frozen=True, kw_only=True)
class Pong(Header):
    """The answer to PING. `rss_mb`: MiB resident; `models_loaded`: how many."""

    TYPE: ClassVar[str] = "PONG"
    req_id: str
    rss_mb: float
    models_loaded: int
    placement_share: float | None = None


@dataclass(frozen=True, kw_only=True)
class Shutdown(Header):
    """Finish the request in flight, answer it, exit 0."""

    TYPE: ClassVar[str] = "SHUTDOWN"


@dataclass(frozen=True, kw_only=True)
class Err(Header):
    """A request failed. Never followed by a raw frame."""

    TYPE: ClassVar[str] = "ERR"
    code: str
    msg: str
    req_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Unknown(Header):
    """A header of a type that this end does not know; `raw_frames` of it are to be skipped."""

    type: str
    req_id: str | None = None
    raw_frames: int = 0


KNOWN: dict[str, type[Any]] = {
    cls.TYPE: cls
    for cls in (
        Hello, HelloAck, Load, Loaded, EmbedBatch, Vectors, Rerank, Scores, Generate, GenerateStream, Token,
        Text, Cancel, ModelInfo, Model, Unload, Unloaded, Ping, Pong, Shutdown, Err,
    )
}  # fmt: skip
# A peer that does not know these could not tell that a raw frame follows, so they say it.
_SAYS_RAW = frozenset({GenerateStream.TYPE})
_read = json.JSONDecoder().raw_decode
_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class _Quick(NamedTuple):
    """JSON by a library that is faster. `read`: None where it does not take it, or it is no object."""

    read: Callable[[bytes | memoryview], dict[str, Any] | None]
    write: Callable[[Any], bytes]


_quick: _Quick | None = None


def hasten() -> bool:
    """Reads and writes by msgspec from here on; False where it is not installed. What it does not take is
    judged by the standard library as before. Asked for, because importing it is a good part of what a
    worker's start takes."""
    global _quick
    try:
        import msgspec
    except ImportError:
        return False
    decode = msgspec.json.Decoder().decode

    def quickly(payload: bytes | memoryview) -> dict[str, Any] | None:
        try:
            given = decode(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return given if type(given) is dict else None

    _quick = _Quick(quickly, msgspec.json.Encoder().encode)
    return True


def write(header: Any) -> bytes:
    """The header's JSON; fields that are None are left out."""
    said = {name: value for name, value in header.__dict__.items() if value is not None}
    out: dict[str, Any] = {"type": header.TYPE, **said}
    if header.TYPE in _SAYS_RAW:
        out["raw_frames"] = header.RAW
    if _quick is not None:
        try:
            return _quick.write(out)
        except (TypeError, ValueError, OverflowError, RecursionError):
            pass  # half a surrogate pair, say
    return _write(out).encode("utf-8", "replace")


def raw_frames(given: dict[str, Any]) -> int:
    """How many raw frames follow: what the header says, else what its type has. Raises HeaderBroken."""
    known = KNOWN.get(given["type"])
    said = given.get("raw_frames")
    if said is None:
        return known.RAW if known is not None else 0
    if type(said) is not int or not 0 <= said <= _MOST_RAW:
        raise HeaderBroken(f"raw_frames is {_kind(said)}; it must be a whole number from 0 to {_MOST_RAW}")
    return said


def decode(payload: bytes | memoryview, default_type: str | None = None) -> dict[str, Any]:
    """The JSON object of a control frame. Raises HeaderBroken.

    `default_type`: what it is where it does not say (published peers say HELLO and HELLO_ACK without a type).
    """
    if _quick is not None and (quickly := _quick.read(payload)) is not None:
        return _typed(quickly, default_type)
    try:
        text = str(payload, "utf-8")
        given, end = _read(text) if text.startswith("{") else (None, -1)
        if end != len(text):  # space around it, or something wrong, which this says better
            given = json.loads(text)
        if "\\u" in text:
            json.dumps(given, ensure_ascii=False).encode()  # half a surrogate pair could never be echoed
    except (ValueError, RecursionError) as error:
        raise HeaderBroken(f"a control frame is no JSON in UTF-8: {error}") from error
    if not isinstance(given, dict):
        raise HeaderBroken(f"a control frame is a JSON {type(given).__name__}, not an object")
    return _typed(given, default_type)


def _typed(given: dict[str, Any], default_type: str | None) -> dict[str, Any]:
    kind = given.setdefault("type", default_type)
    if not isinstance(kind, str) or not kind:
        raise HeaderBroken(f"a control frame has the type {kind!r}")
    return given


def read(given: dict[str, Any]) -> Any:
    """The header in a decoded object. Raises BadHeader."""
    kind = given["type"]
    said = given.get("req_id")
    req_id = said if isinstance(said, str) and 1 <= len(said) <= MAX_REQ_ID else None
    cls = KNOWN.get(kind)
    if cls is None:
        return Unknown(type=kind, req_id=req_id, raw_frames=raw_frames(given))
    if given.get("raw_frames", cls.RAW) not in (None, cls.RAW):
        raise BadHeader(kind, req_id, "raw_frames", f"must be {cls.RAW}, not {given['raw_frames']}")
    values: dict[str, Any] = {}
    for name, (check, needed) in _RULES[kind].items():
        value = given.get(name)
        if value is None:
            if needed:
                raise BadHeader(kind, req_id, name, "is missing")
            continue
        try:
            values[name] = check(value)
        except ValueError as error:
            code = _CODES.get((kind, name), "bad_request")
            raise BadHeader(kind, req_id, name, str(error), code) from None
    return cls(**values)


# -- what each field may be


def _req_id(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_REQ_ID:
        raise ValueError(f"must be text of 1 to {MAX_REQ_ID} characters, not {_kind(value)}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {_kind(value)}")
    return value


def _between(least: int, most: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            upto = f" to {most}" if most < _MOST else ""
            raise ValueError(f"must be a whole number from {least}{upto}, not {_kind(value)}")
        return value

    return check


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not -_MOST <= value <= _MOST:  # neither is a NaN between them
        raise ValueError(f"must be a finite number, not {_kind(value)}")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {_kind(value)}")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("must be a list of texts")
    return tuple(value)


def _map(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"must be an object, not {_kind(value)}")
    return value


def _text_map(value: Any) -> dict[str, str]:
    for name, each in _map(value).items():
        if not isinstance(each, str):
            raise ValueError(f"must map text to text; {_kind(name)} is {_kind(each)}")
    return dict(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list, not {_kind(value)}")
    return value


def _counted(value: Any) -> list[dict[str, Any]]:
    if not 1 <= len(_list(value)) <= MAX_ITEMS:
        raise ValueError(f"must have 1 to {MAX_ITEMS} entries, not {len(value)}")
    for index, each in enumerate(value):
        if not isinstance(each, dict):
            raise ValueError(f"must be a list of objects; number {index} is {_kind(each)}")
        if type(each.get("n_tokens")) is not int or not 1 <= each["n_tokens"] <= _MOST:
            got = _kind(each.get("n_tokens"))
            raise ValueError(f"number {index}: n_tokens must be a whole number from 1, not {got}")
    return list(value)


def _items(value: Any) -> list[dict[str, Any]]:
    for index, each in enumerate(_counted(value)):
        if type(each.get("id")) not in (str, int):
            raise ValueError(
                f"number {index}: id must be text or a whole number, not {_kind(each.get('id'))}"
            )
    return list(value)


def _pooling(value: Any) -> str:
    if value not in POOLINGS:
        raise ValueError(f"must be one of {', '.join(POOLINGS)}, not {_kind(value)}")
    return str(value)


def _engine(value: Any) -> dict[str, Any]:
    found = dict(_map(value))
    found.setdefault("name", found.get("engine"))
    if not isinstance(found["name"], str):
        raise ValueError(f"must have a name that is text, not {_kind(found['name'])}")
    return found


def _kind(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'map'} of {len(value)}"
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 128 else "a huge number"
    return text if len(text) <= 40 else f"{text[:39]}…"


_BY_ANNOTATION = {
    "str": _text,
    "int": _between(0, _MOST),
    "float": _number,
    "bool": _flag,
    "tuple[str, ...]": _texts,
    "dict[str, Any]": _map,
    "dict[str, str]": _text_map,
    "list[dict[str, Any]]": _counted,
    "list[Any]": _list,
}
_ODD: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("HELLO", "v"): _between(0, 255),
    ("HELLO", "engine"): _engine,
    ("HELLO", "max_frame"): _between(0, (1 << 32) - 1),
    ("HELLO_ACK", "v"): _between(0, 255),
    ("HELLO_ACK", "max_frame"): _between(0, (1 << 32) - 1),
    ("EMBED_BATCH", "pooling"): _pooling,
    ("EMBED_BATCH", "items"): _items,
    ("RERANK", "query_n_tokens"): _between(1, _MOST),
    ("GENERATE", "max_tokens"): _between(1, _MOST),
    ("GENERATE_STREAM", "max_tokens"): _between(1, _MOST),
    ("GENERATE_STREAM", "seed"): _between(-_MOST, _MOST),
    ("GENERATE_STREAM", "top_k"): _between(-_MOST, _MOST),
}
_CODES = {("LOAD", "runtime_config"): "config_invalid"}


def _rules(cls: type[Any]) -> dict[str, tuple[Any, bool]]:
    out = {}
    for each in fields(cls):
        annotation = str(each.type).removesuffix(" | None")
        needed = repr(each.default) == repr(each.default_factory)  # neither is given
        odd = _req_id if each.name == "req_id" else _ODD.get((cls.TYPE, each.name))
        out[each.name] = (odd or _BY_ANNOTATION[annotation], needed)
    return out


_RULES = {kind: _rules(cls) for kind, cls in KNOWN.items()}
