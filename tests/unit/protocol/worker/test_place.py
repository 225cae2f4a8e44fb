"""Where a worker's socket lies."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.worker.place import LIMITS, PathTooLong, socket_path

LONG = "worker-of-a-lane-host"
SHORT = hashlib.sha256(LONG.encode()).hexdigest()[:16]


def test_the_path_of_the_seed() -> None:
    assert socket_path("/run/bakemesh/", "w1", "linux") == "/run/bakemesh/synapse/workers/w1.sock"


@pytest.mark.parametrize(("platform", "most"), [("linux", 107), ("darwin", 103), ("freebsd13", 103)])
def test_a_path_that_is_too_long_falls_back(platform: str, most: int) -> None:
    fits = "/r" + "x" * (most - len(f"/r/synapse/workers/{LONG}.sock"))
    assert socket_path(fits, LONG, platform) == f"{fits}/synapse/workers/{LONG}.sock"
    assert socket_path(f"{fits}x", LONG, platform) == f"{fits}x/wk-{SHORT}.sock"
    with pytest.raises(PathTooLong, match=f"allows {most}"):
        socket_path("/r" + "x" * most, "w1", platform)


@given(
    st.text("abc/ü", min_size=1, max_size=90),
    st.text("abcü-", min_size=1, max_size=90),
    st.sampled_from([*LIMITS]),
)
def test_what_is_answered_fits_in_bytes(root: str, worker: str, platform: str) -> None:
    try:
        path = socket_path(root, worker, platform)
    except PathTooLong:
        return
    assert len(path.encode()) < LIMITS[platform]


def test_windows_pipes_differ_by_worker_and_folder() -> None:
    names = {socket_path(root, worker, "win32") for root in ("C:/a", "C:/b") for worker in ("w1", "w2")}
    assert len(names) == 4
    assert all(each.startswith("\\\\.\\pipe\\bakemesh-") and len(each) < 256 for each in names)
