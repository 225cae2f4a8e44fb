"""Paths of a recipe on a real disk: they stay in the bake's folder, and files appear whole."""

from __future__ import annotations

import os
import stat

import pytest

from bakemesh.builder.steps.paths import PathRefused, inside, place, working_folder


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "bake"
    made.mkdir()
    (tmp_path / "outside").mkdir()
    return made


@pytest.mark.parametrize("path", ["../x", "a/../../x", "..", "link/x", "link/../../x", "deep/link/x"])
def test_a_relative_path_never_leaves_the_folder(folder, path):
    (folder / "link").symlink_to(folder.parent / "outside")
    (folder / "deep").mkdir()
    (folder / "deep" / "link").symlink_to("../../outside")
    with pytest.raises(PathRefused, match="must be absolute"):
        inside(folder, path, written=path)
    with pytest.raises(PathRefused):
        place(folder, path, b"x", written=path)
    assert list((folder.parent / "outside").iterdir()) == []


def test_links_and_dots_that_stay_inside_are_fine(folder):
    (folder / "here").mkdir()
    (folder / "link").symlink_to("here")
    assert inside(folder, "link/../a", written="") == folder / "a"
    place(folder, "link/a", b"1", written="")
    assert (folder / "here" / "a").read_bytes() == b"1"


def test_the_bakes_folder_itself_may_lie_behind_a_link(folder, tmp_path):
    (tmp_path / "alias").symlink_to(folder)
    place(tmp_path / "alias", "a/b", b"1", written="")
    assert (folder / "a" / "b").read_bytes() == b"1"


def test_a_link_in_the_place_of_the_file_is_replaced_not_followed(folder):
    victim = folder.parent / "outside" / "victim"
    victim.write_bytes(b"old")
    (folder / "out").symlink_to(victim)
    place(folder, "out", b"new", written="out")
    assert victim.read_bytes() == b"old"
    assert not (folder / "out").is_symlink()
    assert (folder / "out").read_bytes() == b"new"


def test_a_file_is_replaced_whole_and_no_draft_stays(folder):
    place(folder, "sub/out", b"a" * 100_000, written="")
    place(folder, "sub/out", b"b", written="")
    assert (folder / "sub" / "out").read_bytes() == b"b"
    assert os.listdir(folder / "sub") == ["out"]


def test_an_absolute_file_goes_where_it_says_but_its_folder_is_never_made(folder):
    target = folder.parent / "outside" / "out"
    place(folder, str(target), b"1", written="")
    assert target.read_bytes() == b"1"
    with pytest.raises(PathRefused, match="No such file"):
        place(folder, str(folder.parent / "absent" / "out"), b"1", written="/x")


@pytest.mark.parametrize("path", ["", ".", "a/", "a/..", "/"])
def test_a_path_must_name_a_file(folder, path):
    with pytest.raises(PathRefused, match="names no file"):
        place(folder, path, b"", written=path)


def test_a_folder_in_the_way_is_said_and_leaves_no_draft(folder):
    (folder / "out" / "full").mkdir(parents=True)
    with pytest.raises(PathRefused, match="out"):
        place(folder, "out", b"1", written="out")
    assert os.listdir(folder) == ["out"]


def test_what_was_put_in_for_a_reference_is_never_said(folder):
    with pytest.raises(PathRefused) as caught:
        place(folder, "../secret", b"", written="../${entry:Where}")
    assert "secret" not in str(caught.value)
    assert "${entry:Where}" in str(caught.value)
    with pytest.raises(PathRefused) as caught:
        place(folder, "secret\0", b"", written="${entry:Where}")
    assert "secret" not in str(caught.value)


def test_a_loop_of_links_is_refused(folder):
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    with pytest.raises(PathRefused):
        place(folder, "a/x", b"", written="a/x")


def test_a_full_disk_leaves_nothing(folder, monkeypatch):
    monkeypatch.setattr(os, "fsync", _no_space)
    with pytest.raises(PathRefused, match="No space left"):
        place(folder, "out", b"1", written="out")
    assert os.listdir(folder) == []


def _no_space(_fd: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_relative_working_folder_is_made_and_an_absolute_one_must_be_there(folder):
    assert working_folder(folder, None, written=None) == folder
    assert working_folder(folder, "a/b", written="a/b") == folder / "a" / "b"
    assert stat.S_ISDIR(os.stat(folder / "a" / "b").st_mode)
    outside = folder.parent / "outside"
    assert working_folder(folder, str(outside), written="/o") == outside
    with pytest.raises(PathRefused, match="does not exist"):
        working_folder(folder, str(folder.parent / "absent"), written="/absent")
    (folder / "file").touch()
    with pytest.raises(PathRefused, match="is no folder"):
        working_folder(folder, str(folder / "file"), written="/f")
    with pytest.raises(PathRefused):
        working_folder(folder, "file", written="file")
