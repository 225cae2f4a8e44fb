"""LOAD and UNLOAD on llama.cpp: what is no model, what is too much, what aborts; memory given back."""

from __future__ import annotations

import hashlib
import re
import signal
from pathlib import Path

import pytest

from support import models
from support.engine import generate, limited, load, memory_kib, try_load, vectors, worker
from support.workerhost import Host

pytestmark = pytest.mark.engine
CAT = models.words("the cat")


def test_hello_says_which_variant_runs(host: Host) -> None:
    engine = host.hello["engine"]
    assert engine["name"] == "llama"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", engine["version"])
    assert engine["build_flags"]["variant"]
    assert engine["build_flags"]["features"]


def test_a_model_says_what_it_is(host: Host, folder: Path) -> None:
    got, _ = host.ask("MODEL_INFO", model_ref=load(host, folder / "rank.gguf"))
    wanted = {
        "type": "MODEL", "architecture": "bert", "dims": 64, "n_vocab": len(models.WORDS), "n_ctx_train": 128,
        "pooling": "rank", "rank_head": True,
    }  # fmt: skip
    assert got | wanted == got
    got, _ = host.ask("MODEL_INFO", model_ref=load(host, folder / "babble.gguf"))
    assert (got["architecture"], got["pooling"], got["rank_head"]) == ("llama", "none", False)


@pytest.mark.parametrize("kind", models.FAULTY)
def test_a_file_that_is_no_sound_model_is_artifact_invalid_and_the_worker_lives(
    host: Host, folder: Path, tmp_path: Path, kind: str
) -> None:
    got = try_load(host, models.FAULTY[kind](tmp_path / "faulty.gguf"))
    assert (got["type"], got["code"]) == ("ERR", "artifact_invalid"), got
    assert vectors(host, load(host, folder / "mean.gguf"), [CAT]).shape == (1, 64)


def test_a_sound_file_under_anothers_digest_is_artifact_invalid_and_both_are_told(
    host: Host, folder: Path
) -> None:
    path = folder / "mean.gguf"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    got, _ = host.try_load(path, "0" * 64, format="gguf")
    assert (got["type"], got["code"]) == ("ERR", "artifact_invalid")
    assert digest in got["msg"]
    assert vectors(host, load(host, path), [CAT]).shape == (1, 64)


def test_an_assert_in_llama_cpp_kills_its_worker_and_no_other(
    host: Host, folder: Path, tmp_path: Path
) -> None:
    path = models.twice_the_same_word(tmp_path / "twice.gguf")
    with worker() as victim:
        digest_of_a_sound_file = load(victim, folder / "mean.gguf")
        assert digest_of_a_sound_file
        victim.ask_only(
            "LOAD",
            artifact_path=str(path),
            artifact_digest="",
            format="gguf",
            runtime_config={"allow_unverified": "yes"},
        )
        assert victim.ended()
        assert victim.wait() == -signal.SIGABRT
        assert "GGML_ASSERT" in victim.errors()
        assert len(victim.errors().splitlines()) < 10, "a debugger was started"
        assert victim.output() == b""
    assert vectors(host, load(host, folder / "mean.gguf"), [CAT]).shape == (1, 64)


def test_no_memory_for_a_model_or_a_context_is_oom_and_the_worker_lives(folder: Path, tmp_path: Path) -> None:
    with worker(MALLOC_ARENA_MAX="1") as free:
        load(free, folder / "alphabet.gguf")
        command = limited(memory_kib(free.process.pid, "VmSize") + 150 * 1024)
    large = models.alphabet(tmp_path / "large.gguf", feed=300 * 256)
    wide = models.alphabet(tmp_path / "wide.gguf", context=500_000_000)
    with Host(engine="llama", command=command) as host:
        got = try_load(host, large)
        assert (got["type"], got.get("code")) == ("ERR", "oom"), got
        ref = load(host, wide, ctx_size="0")
        got = generate(host, ref, models.characters("0"))
        assert (got["type"], got.get("code")) == ("ERR", "oom"), got
        host.ask("UNLOAD", model_ref=ref)
        ref = load(host, folder / "alphabet.gguf")
        assert generate(host, ref, models.characters("0"), 5)["text"] == "12345"


def test_models_are_side_by_side_and_each_keeps_its_own(host: Host, folder: Path) -> None:
    first = load(host, folder / "mean.gguf")
    alone = vectors(host, first, [CAT])
    chain = load(host, folder / "alphabet.gguf")
    assert generate(host, chain, models.characters("a"), 3)["text"] == "bcd"
    third = load(host, folder / "mean.gguf")
    host.ask("UNLOAD", model_ref=first)
    assert vectors(host, third, [CAT]).tobytes() == alone.tobytes()
    assert generate(host, chain, models.characters("a"), 3)["text"] == "bcd"


def test_unload_gives_the_memory_back_over_50_cycles(folder: Path, tmp_path: Path) -> None:
    large = models.alphabet(tmp_path / "large.gguf", feed=40 * 256)
    with worker() as host:

        def resident() -> float:
            return float(host.ask("PING")[0]["rss_mb"])

        def cycle() -> float:
            refs = [load(host, large), load(host, folder / "mean.gguf")]
            assert generate(host, refs[0], models.characters("a"), 3)["text"] == "bcd"
            vectors(host, refs[1], [CAT] * 64)
            full = resident()
            for ref in refs:
                host.ask("UNLOAD", model_ref=ref)
            pong, _ = host.ask("PING")
            assert pong["models_loaded"] == 0
            assert full - resident() > 30, "the large one has 40 MiB"
            return resident()

        settled = [cycle() for _ in range(5)][-1]
        assert [cycle() for _ in range(45)][-1] - settled < 8


def test_llama_cpp_is_quiet_unless_it_is_asked(folder: Path) -> None:
    for level, says in (("", False), ("info", True)):
        env = {"BAKEMESH_LLAMA_LOG": level} if level else {}
        with worker(**env) as host:
            vectors(host, load(host, folder / "mean.gguf"), [CAT])
            assert ("llama_model_loader" in host.errors()) is says
            assert says or host.errors() == ""
            assert host.output() == b""
