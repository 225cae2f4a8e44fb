"""The cache: whole files under their digest, or nothing."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakemesh.artifacts import ArtifactBroken, Cache, Receiver, hash_file, hex_of

CONTENT = bytes(range(256)) * 5000
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(CONTENT)
    return path


def incoming(cache: Cache) -> list[Path]:
    return list((cache.folder / "incoming").iterdir())


def test_a_digest_is_the_streams_and_progress_ends_at_the_size(source: Path) -> None:
    told: list[tuple[int, int]] = []
    assert hash_file(source, lambda done, total: told.append((done, total))) == DIGEST
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize("text", ["", "sha256:", "sha256:" + "0" * 63, "sha256:../" + "0" * 61, "0" * 64])
def test_what_is_no_digest_is_no_path(cache: Cache, text: str) -> None:
    for ask in (hex_of, cache.path, cache.drop, lambda each: cache.receive(each, 1)):
        with pytest.raises(ValueError, match="64 hex"):
            ask(text)


@pytest.mark.parametrize("link", [True, False])
def test_taken_under_its_digest(cache: Cache, source: Path, link: bool) -> None:
    assert cache.path(DIGEST) is None
    path = cache.take(source, DIGEST, link=link)
    assert path == cache.folder / "sha256" / DIGEST[7:9] / DIGEST[7:]
    assert path.read_bytes() == CONTENT
    assert cache.path(DIGEST) == path
    assert cache.size(DIGEST) == len(CONTENT)
    assert cache.digests() == [DIGEST]
    assert path.samefile(source) == link
    assert source.read_bytes() == CONTENT
    assert not incoming(cache)


def test_a_copy_cannot_be_written_and_a_link_leaves_the_sources_mode(cache: Cache, source: Path) -> None:
    before = source.stat().st_mode
    cache.take(source, DIGEST)
    assert source.stat().st_mode == before
    cache.drop(DIGEST)
    assert cache.take(source, DIGEST, link=False).stat().st_mode & 0o777 == 0o440


def test_taking_twice_leaves_what_is_there(cache: Cache, source: Path) -> None:
    first = cache.take(source, DIGEST, link=False).stat().st_ino
    assert cache.take(source, DIGEST).stat().st_ino == first
    with cache.stage(source) as staged:
        staged.keep()
    assert cache.verify(DIGEST)
    assert not incoming(cache)


def test_staging_a_file_that_is_a_link_into_the_cache_already(cache: Cache, source: Path) -> None:
    cache.take(source, DIGEST)
    with cache.stage(source) as staged:  # rename between two links of one file does nothing at all
        staged.keep()
    assert cache.verify(DIGEST)
    assert not incoming(cache)


def test_through_a_symlink_it_is_the_file_that_is_taken(cache: Cache, source: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(source)
    assert not cache.take(tmp_path / "link", DIGEST).is_symlink()
    assert cache.verify(DIGEST)


def test_another_digest_is_refused_and_nothing_is_left(cache: Cache, source: Path) -> None:
    wrong = "sha256:" + "0" * 64
    with pytest.raises(ArtifactBroken, match=DIGEST):
        cache.take(source, wrong)
    assert cache.path(wrong) is None
    assert cache.digests() == []
    assert not incoming(cache)


def test_a_folder_and_a_pipe_are_no_artifacts(cache: Cache, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ArtifactBroken, match="no plain file"):
            cache.take(path, DIGEST)
    with pytest.raises(FileNotFoundError):
        cache.take(tmp_path / "absent", DIGEST)
    assert not incoming(cache)


def test_a_file_that_is_written_to_meanwhile_is_broken(cache: Cache, source: Path) -> None:
    def interfere(done: int, total: int) -> None:
        with source.open("r+b") as file:
            file.truncate(done + 1)

    with pytest.raises(ArtifactBroken, match="written to"):
        cache.stage(source, hashing=interfere)
    assert not incoming(cache)


def test_what_is_broken_later_is_told_by_verify(cache: Cache, source: Path) -> None:
    cache.take(source, DIGEST)
    assert cache.verify(DIGEST)
    with source.open("r+b") as file:
        file.write(b"other")
    assert not cache.verify(DIGEST)
    assert cache.drop(DIGEST)
    assert not cache.drop(DIGEST)
    assert not cache.verify(DIGEST)


@settings(max_examples=15)
@given(st.permutations(range(8)), st.integers(1, 40))
def test_pieces_in_any_order(tmp_path_factory: pytest.TempPathFactory, order: list[int], step: int) -> None:
    data = os.urandom(step * 8)
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    cache = Cache(tmp_path_factory.mktemp("cache"))
    receiver = cache.receive(digest, len(data))
    for at in order:
        assert cache.path(digest) is None
        receiver.write(at * step, data[at * step : (at + 1) * step])
    assert receiver.finish().read_bytes() == data
    assert not incoming(cache)


def received(cache: Cache, data: bytes) -> Receiver:
    receiver = cache.receive(DIGEST, len(CONTENT))
    receiver.write(0, data)
    return receiver


@pytest.mark.parametrize("data", [CONTENT[:-1], CONTENT[:-1] + b"x"])
def test_what_came_short_or_wrong_is_broken_and_gone(cache: Cache, data: bytes) -> None:
    receiver = received(cache, data)
    with pytest.raises(ArtifactBroken, match=DIGEST):
        receiver.finish()
    assert cache.path(DIGEST) is None
    assert not incoming(cache)
    with pytest.raises(ArtifactBroken, match="already"):
        receiver.write(0, b"x")


@pytest.mark.parametrize("offset", [-1, len(CONTENT), len(CONTENT) - 1])
def test_a_piece_outside_of_the_file_is_refused(cache: Cache, offset: int) -> None:
    with pytest.raises(ArtifactBroken, match="came of a file of"):
        received(cache, b"").write(offset, b"ab")


def test_two_receivers_of_one_digest_do_not_meet(cache: Cache) -> None:
    first, second, third = received(cache, CONTENT), received(cache, b"half"), received(cache, CONTENT)
    path = first.finish()
    second.abandon()
    second.abandon()
    assert path.read_bytes() == CONTENT
    assert third.finish() == path
    assert cache.verify(DIGEST)
    assert path.stat().st_mode & 0o777 == 0o440


def test_leftovers_go_at_the_next_start_but_not_what_another_process_holds(cache: Cache) -> None:
    dead = cache.folder / "incoming" / "dead"
    dead.write_bytes(b"half")
    living = received(cache, b"half")
    Cache(cache.folder)
    assert not dead.exists()
    assert len(incoming(cache)) == 1
    living.write(0, CONTENT)
    assert living.finish().read_bytes() == CONTENT


def test_a_temporary_is_locked_while_it_is_written(cache: Cache) -> None:
    living = received(cache, b"half")
    (path,) = incoming(cache)
    with path.open("rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    living.abandon()
    assert not incoming(cache)
