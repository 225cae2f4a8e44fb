"""Messages of inference, one a type at least: what is asked of modules and lanes, and what they answer."""

from __future__ import annotations

import struct
from typing import Any

S, W = "Psyclone.Synapse", "Psyclone.Worker"
REQUEST = bytes(range(16))
DIGEST = "sha256:" + "5a" * 32
IDS = struct.pack("<5i", 101, 7592, 2088, 102, 0)
ROWS = struct.pack("<4f", 0.5, -0.25, 1.0, 0.0)
OF_MODEL = {
    "digest": DIGEST,
    "format": "gguf",
    "config": {"ctx_size": "512"},
    "deadlinems": 5000,
    "attempt": 0,
}
WORK = {"class": "interactive", "priority": 0, "attempt": 0}
FAILURE: dict[str, Any] = {
    "code": "engine_crashed",
    "class": "transient",
    "safe_to_retry_same_request": 0,
    "message": "embed: the worker ended by SIGABRT",
    "details": {"stage": "embed", "signal": 6, "output": "[stderr] GGML_ASSERT"},
}

INFERENCE: list[tuple[str, str, dict[str, Any]]] = [
    (
        "texts to embed",
        f"{S}.Embed",
        {
            "deadlinems": 2000,
            "class": "bulk",
            "priority": 5,
            "attempt": 1,
            "texts": ["hello", "schön"],
            "normalize": 1,
            "truncate": 0,
        },
    ),
    (
        "ids to embed",
        f"{S}.Embed",
        {**WORK, "data": IDS, "counts": [4, 1], "pooling": "cls", "normalize": 0, "truncate": 1},
    ),
    ("a rerank", f"{S}.Rerank", {**WORK, "query": "which?", "documents": ["this", "that"], "truncate": 0}),
    (
        "a chat, streamed and sampled",
        f"{S}.Generate",
        {
            **WORK,
            "messages": [{"role": "user", "content": "Hello"}],
            "maxtokens": 64,
            "temperature": 0.7,
            "topk": 40,
            "topp": 0.9,
            "minp": 0.05,
            "seed": 4294967295,
            "stop": ["\n\n"],
            "stream": 1,
        },
    ),
    (
        "a prompt under a schema",
        f"{S}.Generate",
        {**WORK, "prompt": "{", "maxtokens": 8, "jsonschema": '{"type":"object"}', "stream": 0},
    ),
    (
        "a prompt of ids under a grammar",
        f"{S}.Generate",
        {**WORK, "data": IDS, "maxtokens": 128, "grammar": 'root ::= "a"', "stream": 0},
    ),
    ("a cancel", f"{S}.Cancel", {"request": REQUEST}),
    ("models asked", f"{S}.Models", {}),
    ("health asked", f"{S}.Health", {}),
    ("a probe", f"{S}.Probe", {"config": {"ctx_size": "512"}}),
    ("an ingest", f"{S}.Ingest", {"path": "/srv/models/a.gguf", "weights": "fastest", "config": {}}),
    ("a piece of an artifact", f"{S}.Artifact", {"digest": DIGEST, "offset": 0, "length": 524288}),
    (
        "vectors",
        f"{S}.Vectors",
        {"request": REQUEST, "first": 0, "n": 2, "dims": 2, "data": ROWS, "final": 1, "ntokens": 5},
    ),
    ("scores", f"{S}.Scores", {"request": REQUEST, "n": 4, "data": ROWS, "ntokens": 9}),
    ("a token", f"{S}.Token", {"request": REQUEST, "index": 0, "text": "Hé"}),
    ("nothing yet", f"{S}.Alive", {"request": REQUEST, "state": "queued"}),
    (
        "a text",
        f"{S}.Text",
        {"request": REQUEST, "text": "Hello", "finishreason": "stop", "nprompt": 9, "ngen": 1},
    ),
    (
        "models",
        f"{S}.ModelList",
        {"request": REQUEST, "models": [{"alias": "mini", "digest": DIGEST, "kind": "embed", "dims": 384}]},
    ),
    (
        "health",
        f"{S}.HealthStamp",
        {
            "request": REQUEST,
            "state": "degraded",
            "queued": 3,
            "bytesinflight": 4096,
            "lanes": [{"lane": "w0", "state": "idle", "age_ms": 12}],
            "models": [{"alias": "mini", "quarantined": 1}],
            "problem": "lane w1 is crashed",
        },
    ),
    ("a probe passed", f"{S}.Probed", {"request": REQUEST, "state": "ok"}),
    ("progress", f"{S}.Progress", {"request": REQUEST, "stage": "hash", "done": 1, "total": 2}),
    (
        "an ingest done",
        f"{S}.Ingested",
        {"request": REQUEST, "digest": DIGEST, "alias": "mini", "manifest": {"dims": 384}},
    ),
    ("a chunk", f"{S}.Chunk", {"request": REQUEST, "offset": 0, "data": b"GGUF", "total": 4}),
    ("an error", f"{S}.Error", {"request": REQUEST, **FAILURE}),
    (
        "a full node",
        f"{S}.Error",
        {
            "request": REQUEST,
            "code": "queue_full",
            "class": "transient",
            "safe_to_retry_same_request": 1,
            "message": "it would begin in 3100 ms; 2000 ms are allowed",
            "retry_after_ms": 1100,
        },
    ),
    (
        "a module's status",
        f"{S}.Status",
        {
            "Node": "beta",
            "NodeID": "b1",
            "run": "3f0c",
            "serial": 1,
            "state": "ok",
            "waitms": 12,
            "rate": 5100.5,
            "backlog": 512,
            "queued": 2,
            "bytesinflight": 4096,
            "lanes": 2,
            "busy": 1,
            "models": ["chat", "mini"],
            "loaded": ["mini"],
            "version": "0.1.0",
        },
    ),
    (
        "a load",
        f"{W}.Load",
        {"digest": DIGEST, "format": "gguf", "config": {}, "size": 4096, "artifactnode": "a1", "attempt": 0},
    ),
    (
        "a batch of two callers",
        f"{W}.EmbedBatch",
        {**OF_MODEL, "pooling": "mean", "normalize": 1, "counts": [4, 1], "shares": [1, 1], "data": IDS},
    ),
    ("a lane's rerank", f"{W}.Rerank", {**OF_MODEL, "query_n_tokens": 1, "counts": [2, 2], "data": IDS}),
    ("a lane's generation", f"{W}.Generate", {**OF_MODEL, "max_tokens": 8, "data": IDS}),
    (
        "a lane's stream",
        f"{W}.GenerateStream",
        {**OF_MODEL, "max_tokens": 8, "temperature": 0.5, "seed": 7, "stop": ["."], "data": IDS},
    ),
    ("a lane's cancel", f"{W}.Cancel", {"request": REQUEST}),
    ("a model asked", f"{W}.ModelInfo", OF_MODEL),
    ("a lane's probe", f"{W}.Probe", OF_MODEL),
    ("an unload", f"{W}.Unload", OF_MODEL),
    ("a ping", f"{W}.Ping", {}),
    ("a lane asked", f"{W}.Lane", {}),
    ("loaded", f"{W}.Loaded", {"request": REQUEST, "dims": 384, "cold_load_ms": 90}),
    (
        "vectors of one of two callers",
        f"{W}.Vectors",
        {"request": REQUEST, "n": 1, "dims": 4, "data": ROWS, "failed": [{"share": 1, **FAILURE}]},
    ),
    ("a lane's scores", f"{W}.Scores", {"request": REQUEST, "data": ROWS}),
    ("a lane's token", f"{W}.Token", {"request": REQUEST, "index": 1, "text": "o"}),
    (
        "a lane's text",
        f"{W}.Text",
        {"request": REQUEST, "text": "Ho", "n_prompt": 5, "n_gen": 2, "finish_reason": "length"},
    ),
    (
        "a model told",
        f"{W}.Model",
        {
            "request": REQUEST,
            "architecture": "bert",
            "dims": 384,
            "n_vocab": 30522,
            "n_ctx_train": 512,
            "pooling": "mean",
            "rank_head": 0,
        },
    ),
    ("a lane's probe passed", f"{W}.Probed", {"request": REQUEST, "state": "ok"}),
    ("unloaded", f"{W}.Unloaded", {"request": REQUEST}),
    ("a pong", f"{W}.Pong", {"request": REQUEST, "state": "idle", "rss_mb": 81.5, "models_loaded": 1}),
    ("a lane described", f"{W}.Described", {"request": REQUEST, "lane": {"lane": "lanes-w0"}}),
    ("a lane's error", f"{W}.Error", {"request": REQUEST, **FAILURE}),
    (
        "a lane's status",
        f"{W}.Status",
        {
            "Node": "beta",
            "NodeID": "b1",
            "lane": "lanes-w0",
            "run": "77aa",
            "serial": 3,
            "state": "idle",
            "degraded": 0,
            "engine": "llama.cpp AVX512",
            "types": ["GENERATE_STREAM"],
            "pid": 4711,
            "rss_mb": 81.5,
            "models": [{"digest": DIGEST, "format": "gguf", "config": {}, "loaded": 1}],
            "crashes": 0,
            "version": "0.1.0",
        },
    ),
]

INFERENCE_REFUSED: list[tuple[str, str, dict[str, Any], str | None]] = [
    ("no texts at all", f"{S}.Embed", {"texts": []}, "texts"),
    ("texts that are one text", f"{S}.Embed", {"texts": "hello"}, "texts"),
    ("an unknown class", f"{S}.Embed", {"texts": ["a"], "class": "urgent"}, "class"),
    ("a third attempt", f"{S}.Embed", {"texts": ["a"], "attempt": 2}, "attempt"),
    ("a deadline of nothing", f"{S}.Embed", {"texts": ["a"], "deadlinems": 0}, "deadlinems"),
    ("an item of no tokens", f"{S}.Embed", {"data": IDS, "counts": [5, 0]}, "counts.1"),
    ("no query", f"{S}.Rerank", {"documents": ["a"]}, "query"),
    ("no tokens wanted", f"{S}.Generate", {"prompt": "a", "maxtokens": 0}, "maxtokens"),
    ("a seed too large", f"{S}.Generate", {"prompt": "a", "seed": 1 << 32}, "seed"),
    ("an empty stop", f"{S}.Generate", {"prompt": "a", "stop": [""]}, "stop.0"),
    ("half an id", f"{S}.Cancel", {"request": REQUEST[:8]}, "request"),
    ("a digest of another kind", f"{S}.Artifact", {"digest": "md5:00", "offset": 0, "length": 1}, "digest"),
    ("a load of nothing", f"{W}.Load", {"format": "gguf"}, "digest"),
    ("an error without its class", f"{S}.Error", {"request": REQUEST, "code": "oom"}, "class"),
]
