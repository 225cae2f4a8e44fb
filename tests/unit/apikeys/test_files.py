"""Key files on disk: rights, whole changes, who is known and until when."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bakemesh.apikeys import KeyFileRefused, KnownKeys, add, load, revoke
from bakemesh.apikeys.known import LOOK_S

NOW = datetime(2026, 1, 2, tzinfo=UTC)


class Clock:
    """Turned by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_new_key_is_there_with_rights_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "keys"
    secret = add(path, "app", NOW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert secret not in path.read_text()
    assert [key.name for key in load(path)] == ["app"]
    with pytest.raises(KeyFileRefused, match="there already"):
        add(path, "app", NOW)
    revoke(path, "app")
    assert load(path) == ()
    with pytest.raises(KeyFileRefused, match="no key 'app'; there are: none"):
        revoke(path, "app")
    assert [each.name for each in path.parent.iterdir()] == ["keys"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o700, 0o666])
def test_a_file_that_others_may_open_is_not_read(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys"
    add(path, "app", NOW)
    path.chmod(mode)
    with pytest.raises(KeyFileRefused, match=f"{mode:04o}.*chmod 600"):
        load(path)
    with pytest.raises(KeyFileRefused):
        add(path, "other", NOW)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(KeyFileRefused):
        load(tmp_path)
    assert load(tmp_path / "none") == ()


def test_keys_that_are_made_at_once_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    with ThreadPoolExecutor(8) as pool:
        secrets = list(pool.map(lambda number: add(path, f"k{number}", NOW), range(24)))
    known = KnownKeys(path)
    assert sorted(known.name_of(f"Bearer {each}") or "" for each in secrets) == sorted(
        f"k{number}" for number in range(24)
    )


def test_who_is_known_follows_the_file(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys", Clock()
    known = KnownKeys(path, clock=clock)
    assert len(known) == 0
    secret = add(path, "app", NOW)
    assert known.name_of(f"Bearer {secret}") is None  # not looked at yet
    clock.now += LOOK_S
    assert known.name_of(f"Bearer {secret}") == "app"
    assert known.name_of(f"bearer  {secret} ") == "app"
    for wrong in (None, "", secret, f"Basic {secret}", f"Bearer {secret}x", f"Bearer {secret[:-1]}"):
        assert known.name_of(wrong) is None, wrong
    changed = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    assert known.name_of(f"Bearer {changed}") is None
    revoke(path, "app")
    clock.now += LOOK_S
    assert known.name_of(f"Bearer {secret}") is None


@pytest.mark.parametrize("spoil", ["rights", "text", "gone"])
def test_where_the_file_cannot_be_read_nobody_is_known(tmp_path: Path, spoil: str) -> None:
    path, clock = tmp_path / "keys", Clock()
    secret = add(path, "app", NOW)
    known = KnownKeys(path, clock=clock)
    assert known.name_of(f"Bearer {secret}") == "app"
    if spoil == "rights":
        path.chmod(0o644)
    elif spoil == "text":
        path.write_text("nonsense\n")
    else:
        path.unlink()
    clock.now += LOOK_S
    assert known.name_of(f"Bearer {secret}") is None
