"""Where the sockets of workers are: always short enough for a socket."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.worker.place import LIMITS, socket_path
from bakemesh.workerpool.settings import runtime_dir


@given(st.integers(1, 200), st.sampled_from(sorted(LIMITS)))
def test_a_worker_has_a_socket_however_deep_the_folder_is(length: int, platform: str) -> None:
    folder = Path("/" + "a" * length)
    found = runtime_dir(folder)
    assert socket_path(str(found), "w1023", platform).startswith(str(found))
    assert found == runtime_dir(folder)
    if length < 60:
        assert found == folder / "run"


def test_two_deep_folders_have_two_places() -> None:
    one, other = (runtime_dir(Path("/" + letter * 150)) for letter in "ab")
    assert one != other
