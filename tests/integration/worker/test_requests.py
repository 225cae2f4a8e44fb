"""Every request to a real worker process, from a stranger's host, and every refusal; the worker lives on."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.workerhost import Host, f32, i32

D = "0" * 64


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """One worker for the whole file: no refusal may harm what comes after it."""
    with Host() as made:
        yield made


@pytest.fixture(scope="module")
def ref(host: Host) -> str:
    """A loaded model."""
    return host.load(slow_ms="0")


def refused(answer: tuple[dict[str, Any], bytes | None], code: str, *words: str) -> None:
    """It is an ERR with this code, which says these words."""
    got, _ = answer
    assert (got["type"], got["code"]) == ("ERR", code), got
    for word in words:
        assert word in got["msg"], got


def test_hello_says_what_the_worker_is(host: Host) -> None:
    assert host.hello["type"] == "HELLO"
    assert (host.hello["v"], host.hello["nonce"], host.hello["pid"]) == (1, host.nonce, host.process.pid)
    assert host.hello["engine"] == {"name": "fake", "version": "1", "build_flags": {"arithmetic": True}}
    assert host.hello["max_frame"] == 64 << 20
    assert set(host.hello["types"]) == {"GENERATE_STREAM", "CANCEL", "MODEL_INFO"}


@pytest.mark.parametrize("prefix", ["", "sha256:", "sha256:upper"])
def test_load(host: Host, prefix: str) -> None:
    path, digest = host.file(prefix.encode())
    given = f"sha256:{digest.upper()}" if prefix == "sha256:upper" else prefix + digest
    got, _ = host.try_load(path, given)
    assert got["type"] == "LOADED"
    assert got["model_ref"].startswith("fake:")
    assert got["dims"] == 8
    assert isinstance(got["cold_load_ms"], int)


def test_a_models_name_is_never_used_again(host: Host) -> None:
    first = host.load()
    host.ask("UNLOAD", model_ref=first)
    assert host.load() != first


def test_the_published_hosts_config_is_taken(host: Host) -> None:
    path, digest = host.file()
    published = dict.fromkeys(
        ("artifact_path", "model_path", "pooling_implementation", "forward_pass", "microllm_max_tokens"), "x"
    )
    known = {
        "ctx_size": "512", "batch_size": "64", "ubatch_size": "64", "gpu_layers": "0", "threads": "1",
        "flash_attention": "auto", "pooling": "mean", "allow_unfaithful": "no", "allow_unverified": "no",
    }  # fmt: skip
    assert host.try_load(path, digest, published | known)[0]["type"] == "LOADED"


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"contextsize": "5"}, "contextsize"),
        ({"ctx_size": "many"}, "ctx_size"),
        ({"ctx_size": "-1"}, "ctx_size"),
        ({"threads": "0"}, "threads"),
        ({"flash_attention": "on"}, "flash_attention"),
        ({"pooling": "max"}, "pooling"),
        ({"allow_unverified": "true"}, "allow_unverified"),
        ({"threads": 1}, "threads"),
        ({"threads": None}, "threads"),
        ({"start_error": "bad luck"}, "start_error"),
        ({"exit_code_after": "3"}, "exit_code_after"),
        ({"abort_on_item": "soon"}, "abort_on_item"),
        ({"dims": "9"}, "dims"),
    ],
)
def test_a_config_that_is_wrong_is_named(host: Host, config: dict[str, Any], word: str) -> None:
    path, digest = host.file()
    refused(host.try_load(path, digest, config), "config_invalid", word)


def test_another_format_is_refused(host: Host) -> None:
    path, digest = host.file()
    refused(host.try_load(path, digest, format="gguf"), "config_invalid", "gguf", "fake")


@pytest.mark.parametrize("digest", ["sha256:", "abc", D + "0", "md5:" + D[:32], "g" * 64])
def test_a_malformed_digest_is_refused(host: Host, digest: str) -> None:
    refused(host.try_load(host.file()[0], digest), "artifact_invalid")


def test_another_digest_is_refused_and_both_are_told(host: Host) -> None:
    path, digest = host.file(b"forged")
    refused(host.try_load(path, D), "artifact_invalid", digest, D)


def test_an_empty_digest_needs_a_word(host: Host) -> None:
    path, _ = host.file()
    refused(host.try_load(path, ""), "artifact_invalid", "allow_unverified")
    assert host.try_load(path, "", {"allow_unverified": "yes"})[0]["type"] == "LOADED"


def test_what_is_no_file_is_refused(host: Host, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "none", tmp_path, tmp_path / "fifo", "/dev/zero", "a\0b", ""):
        refused(host.try_load(path, D), "artifact_invalid")


def test_start_error(host: Host) -> None:
    path, digest = host.file()
    refused(host.try_load(path, digest, {"start_error": "oom"}), "oom")


def test_embed(host: Host, ref: str) -> None:
    items = [(1, 2, 3), (4,), (1, 2, 3), (3, 2, 1)]
    got, raw = host.embed(ref, *items)
    assert (got["type"], got["n"], got["dims"], got["ids"]) == ("VECTORS", 4, 8, ["0", "1", "2", "3"])
    assert raw is not None
    rows = [f32(raw)[at : at + 8] for at in range(0, 32, 8)]
    assert rows[0] == rows[2]
    assert len({rows[0], rows[1], rows[3]}) == 3
    for item, row in zip(items, rows, strict=True):
        assert sum(each * each for each in row) == pytest.approx(1)
        assert f32(host.embed(ref, item)[1] or b"") == row, "alone as in a batch"
    assert f32(host.embed(ref, items[0], normalize=False)[1] or b"") != rows[0]
    assert f32(host.embed(ref, items[0], pooling="cls")[1] or b"") != rows[0]


def test_an_items_id_comes_back_as_it_was_given(host: Host, ref: str) -> None:
    ids = ["ü", 7, "7", 2**53]
    items = [{"id": each, "n_tokens": 1} for each in ids]
    got, _ = host.embed(ref, (1, 2, 3, 4), items=items)
    assert got["ids"] == ids


def test_256_items_are_the_most(host: Host, ref: str) -> None:
    assert host.embed(ref, *[(1,)] * 256)[0]["n"] == 256
    refused(host.embed(ref, *[(1,)] * 257), "bad_request", "items", "256")


def test_rerank(host: Host, ref: str) -> None:
    given = {"model_ref": ref, "query_n_tokens": 2, "candidates": [{"n_tokens": 1}, {"n_tokens": 2}]}
    got, raw = host.ask("RERANK", i32(9, 8, 1, 2, 3), **given)
    assert got["type"] == "SCORES"
    assert raw is not None
    scores = f32(raw)
    assert len(scores) == 2
    alone = [
        f32(
            host.ask("RERANK", i32(9, 8, *ids), **(given | {"candidates": [{"n_tokens": len(ids)}]}))[1]
            or b""
        )
        for ids in ((1,), (2, 3))
    ]
    assert scores == (*alone[0], *alone[1])


def test_generate(host: Host, ref: str) -> None:
    got, _ = host.ask("GENERATE", i32(7, 8, 9), model_ref=ref, max_tokens=64)
    del got["req_id"]
    text = {"type": "TEXT", "text": "7 8 9 ", "n_prompt": 3, "n_gen": 3, "finish_reason": "stop"}
    assert got == text
    got, _ = host.ask("GENERATE", i32(7, 8, 9), model_ref=ref, max_tokens=2, grammar="")
    assert (got["text"], got["finish_reason"]) == ("7 8 ", "length")
    refused(host.ask("GENERATE", i32(7), model_ref=ref, max_tokens=2, grammar="root ::= x"), "bad_request")


def test_generate_stream(host: Host, ref: str) -> None:
    req_id = host.ask_only("GENERATE_STREAM", i32(7, 8, 9), model_ref=ref, max_tokens=9, seed=1, stop=["10"])
    tokens = []
    while (got := host.recv())["type"] == "TOKEN":
        assert got["req_id"] == req_id
        assert got["index"] == len(tokens)
        tokens.append(got["text"])
    assert (got["req_id"], got["text"], got["finish_reason"]) == (req_id, "8 9 ", "stop")
    assert tokens == ["8 ", "9 "]


def test_model_info(host: Host) -> None:
    path, digest = host.file(b"whose")
    loaded, _ = host.try_load(path, digest, {"pooling": "last", "dims": "16"})
    got, _ = host.ask("MODEL_INFO", model_ref=loaded["model_ref"])
    assert got["architecture"] == f"fake-{zlib.crc32(b'whose'):08x}"
    assert (got["dims"], got["n_vocab"], got["pooling"], got["rank_head"]) == (16, 32_000, "last", True)
    assert got["n_ctx_train"] > 0


def test_unload_and_ping(host: Host) -> None:
    before = host.ask("PING")[0]["models_loaded"]
    ref = host.load()
    got, _ = host.ask("PING")
    assert got["type"] == "PONG"
    assert got["models_loaded"] == before + 1
    real = int(Path(f"/proc/{host.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert got["rss_mb"] == pytest.approx(real / (1 << 20), rel=0.2)
    for _ in range(2):  # the second finds it unloaded already
        assert host.ask("UNLOAD", model_ref=ref)[0]["type"] == "UNLOADED"
    assert host.ask("PING")[0]["models_loaded"] == before
    refused(host.embed(ref, (1,)), "unknown_model", ref)


@pytest.mark.parametrize("kind", ["EMBED_BATCH", "RERANK", "GENERATE", "GENERATE_STREAM", "MODEL_INFO"])
def test_an_unknown_model_is_refused_and_its_frame_skipped(host: Host, kind: str) -> None:
    fields = {
        "EMBED_BATCH": {"pooling": "mean", "normalize": True, "items": [{"id": "a", "n_tokens": 1}]},
        "RERANK": {"query_n_tokens": 1, "candidates": [{"n_tokens": 1}]},
        "GENERATE": {"max_tokens": 1},
        "GENERATE_STREAM": {"max_tokens": 1},
        "MODEL_INFO": {},
    }[kind]
    raw = [] if kind == "MODEL_INFO" else [i32(1)]
    refused(host.ask(kind, *raw, model_ref="fake:99", **fields), "unknown_model", "fake:99")


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (i32(1, 2), ("8 bytes", "3 ids")),
        (i32(1, 2, 3, 4), ("16 bytes",)),
        (i32(1, 2, 3)[:-1], ("11 bytes",)),
        (b"", ("0 bytes",)),
        (i32(1, -1, 3), ("-1", "number 1", "31999")),
        (i32(1, 2, 32_000), ("32000", "number 2")),
        (i32(1, 2, 2**31 - 1), ("2147483647",)),
    ],
)
def test_ids_that_an_engine_must_never_see(host: Host, ref: str, ids: bytes, words: tuple[str, ...]) -> None:
    items = [{"id": "a", "n_tokens": 1}, {"id": "b", "n_tokens": 2}]
    batch = {"model_ref": ref, "pooling": "mean", "normalize": True, "items": items}
    refused(host.ask("EMBED_BATCH", ids, **batch), "bad_request", *words)
    pairs = {"model_ref": ref, "query_n_tokens": 1, "candidates": [{"n_tokens": 2}]}
    refused(host.ask("RERANK", ids, **pairs), "bad_request", *words)


def test_a_prompt_of_no_ids_or_of_broken_ones_is_refused(host: Host, ref: str) -> None:
    for kind in ("GENERATE", "GENERATE_STREAM"):
        for ids in (b"", b"\1\0", i32(1)[:3], i32(1, -5), i32(1) + b"\0"):
            refused(host.ask(kind, ids, model_ref=ref, max_tokens=1), "bad_request")


def test_what_the_engine_refuses_is_told(host: Host) -> None:
    ref = host.load(ctx_size="4")
    refused(host.embed(ref, (1, 2, 3, 4, 5)), "bad_request", "5 ids", "4")
    refused(host.embed(ref, (1,), pooling="rank"), "bad_request", "rank")


@pytest.mark.parametrize(
    ("header", "raw", "word"),
    [
        ({"type": "LOAD", "req_id": "x"}, [], "artifact_path"),
        ({"type": "EMBED_BATCH", "req_id": "x"}, [i32(1, 2)], "model_ref"),
        ({"type": "RERANK", "req_id": "x", "model_ref": "m"}, [i32(1)], "query_n_tokens"),
        ({"type": "GENERATE", "req_id": "x", "model_ref": "m", "max_tokens": "5"}, [i32(1)], "max_tokens"),
        ({"type": "PING", "req_id": "x", "raw_frames": 2}, [b"", b"{}"], "raw_frames"),
    ],
)
def test_a_header_that_lacks_a_field_is_answered_and_the_link_stays_in_step(
    host: Host, header: dict[str, Any], raw: list[bytes], word: str
) -> None:
    host.send(header, *raw)
    got = host.recv()
    assert (got["req_id"], got["code"]) == ("x", "bad_request")
    assert word in got["msg"]
    assert host.ask("PING")[0]["type"] == "PONG"


@pytest.mark.parametrize("raw", [[], [b"{}"], [b"", b"\xff" * 100_000, i32(1)]])
def test_an_unknown_type_is_answered_and_its_frames_skipped(host: Host, raw: list[bytes]) -> None:
    host.send({"type": "GENERATE_BATCH", "req_id": "x", "raw_frames": len(raw)}, *raw)
    got = host.recv()
    assert (got["req_id"], got["code"]) == ("x", "unknown_type")
    assert "GENERATE_BATCH" in got["msg"]
    assert host.ask("PING")[0]["type"] == "PONG"


def test_a_stale_cancel_is_ignored(host: Host) -> None:
    host.send({"type": "CANCEL", "req_id": "c1", "target": "q1"})
    assert host.ask("PING")[0]["type"] == "PONG"


def test_stdout_is_nobodys_channel(host: Host) -> None:
    ref = host.load(stdout_flood="300000")
    assert host.embed(ref, (1,))[0]["type"] == "VECTORS"
    assert len(host.output()) >= 300_000
    host.ask("UNLOAD", model_ref=host.load())


def test_what_is_loaded_is_what_was_digested(host: Host) -> None:
    """The file is exchanged between digest and load: the fake engine waits there."""
    path, digest = host.file(b"good" * 1000)
    other = host.folder / "other"
    other.write_bytes(b"evil" * 1000)
    req = host.ask_only(
        "LOAD", artifact_path=str(path), artifact_digest=digest, format="fake",
        runtime_config={"slow_load_ms": "1000"},
    )  # fmt: skip
    wait_for_open(host, path)
    os.replace(other, path)
    got = host.recv()
    assert (got["type"], got["req_id"]) == ("LOADED", req)
    info, _ = host.ask("MODEL_INFO", model_ref=got["model_ref"])
    assert info["architecture"] == f"fake-{zlib.crc32(b'good' * 1000):08x}"


def test_a_file_that_is_written_to_while_it_is_loaded_is_refused(host: Host) -> None:
    path, digest = host.file(b"good" * 1000)
    before = host.ask("PING")[0]["models_loaded"]
    host.ask_only(
        "LOAD", artifact_path=str(path), artifact_digest=digest, format="fake",
        runtime_config={"slow_load_ms": "1000"},
    )  # fmt: skip
    wait_for_open(host, path)
    with open(path, "ab") as file:
        file.write(b"evil")
    got = host.recv()
    assert (got["type"], got["code"]) == ("ERR", "artifact_invalid")
    assert host.ask("PING")[0]["models_loaded"] == before


def wait_for_open(host: Host, path: Path) -> None:
    """Until the worker has the file open (and, it being small, digested)."""
    folder = Path(f"/proc/{host.process.pid}/fd")

    def position() -> int | None:
        for each in folder.iterdir():
            try:
                if os.readlink(each) == str(path):
                    info = Path(f"/proc/{host.process.pid}/fdinfo/{each.name}").read_text()
                    return int(info.split()[1])
            except OSError:
                continue
        return None

    while position() is None:
        assert host.process.poll() is None
