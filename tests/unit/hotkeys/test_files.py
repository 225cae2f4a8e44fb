"""Key files on disk: who may read them, and that none is overwritten."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from bakemesh.hotkeys import HotkeyRefused, create_hotkey, load_hotkey, wallet_hotkey
from bakemesh.hotkeys.files import LARGEST, refusal


def test_a_new_key_is_read_again_and_is_only_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "gateway.json"

    made = create_hotkey(path)

    assert load_hotkey(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [each.name for each in path.parent.iterdir()] == ["gateway.json"]


def test_two_keys_are_not_the_same(tmp_path: Path) -> None:
    assert create_hotkey(tmp_path / "a").address != create_hotkey(tmp_path / "b").address


def test_a_file_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    made = create_hotkey(tmp_path / "k")

    with pytest.raises(HotkeyRefused, match="never overwritten"):
        create_hotkey(tmp_path / "k")

    assert load_hotkey(tmp_path / "k") == made
    assert [each.name for each in tmp_path.iterdir()] == ["k"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o601, 0o700])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    create_hotkey(tmp_path / "k")
    (tmp_path / "k").chmod(mode)

    with pytest.raises(HotkeyRefused, match=rf"rights are {mode:04o}, .*chmod 600"):
        load_hotkey(tmp_path / "k")


def test_a_file_that_is_only_read_by_its_owner_is_taken(tmp_path: Path) -> None:
    made = create_hotkey(tmp_path / "k")
    (tmp_path / "k").chmod(0o400)

    assert load_hotkey(tmp_path / "k") == made


def test_somebody_elses_file_is_refused(tmp_path: Path) -> None:
    create_hotkey(tmp_path / "k")
    found = (tmp_path / "k").stat()

    assert refusal(found, found.st_uid) is None
    assert "its owner is" in (refusal(found, found.st_uid + 1) or "")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)

    with pytest.raises(HotkeyRefused, match="no regular file"):
        load_hotkey(tmp_path / "pipe")
    with pytest.raises(HotkeyRefused, match="no regular file"):
        load_hotkey(tmp_path)
    with pytest.raises(HotkeyRefused, match=r"No such file .*bakemesh hotkey new"):
        load_hotkey(tmp_path / "none")


@pytest.mark.parametrize(
    ("raw", "told"),
    [(b"\xff" * 9, "not UTF-8"), (b"{" + b" " * LARGEST, "more than"), (b"{}", "ss58Address")],
)
def test_what_is_no_key_file_is_refused(tmp_path: Path, raw: bytes, told: str) -> None:
    path = tmp_path / "k"
    path.touch(0o600)
    path.write_bytes(raw)

    with pytest.raises(HotkeyRefused, match=told):
        load_hotkey(path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(HotkeyRefused, match="can be written"):
        create_hotkey(tmp_path / "file" / "k")


def test_a_wallets_hotkey_has_its_place(tmp_path: Path) -> None:
    assert wallet_hotkey("miner", "one", tmp_path) == tmp_path / "miner" / "hotkeys" / "one"
    assert wallet_hotkey("miner", "one") == Path.home() / ".bittensor/wallets/miner/hotkeys/one"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\0b"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(HotkeyRefused, match="no plain name"):
        wallet_hotkey(name, "default")
    with pytest.raises(HotkeyRefused, match="no plain name"):
        wallet_hotkey("default", name)
