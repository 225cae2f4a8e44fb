"""Which components a nursery takes, and what its forks show of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.keeper import guise
from bakemesh.processes import Nurse, ProcessSpec, ShimSpec

COMMON = {"PATH": "/bin", "PYTHONUNBUFFERED": "1", "LANG": "C.UTF-8", "HOME": "/root"}
NURSE = Nurse("a.module", preload="a.module.all", common=COMMON)
TEXTS = st.lists(st.binary(max_size=20).map(lambda text: text.replace(b"\0", b"0")), max_size=12)


def spec(env: dict[str, str], module: str | None = "a.module") -> ShimSpec:
    process = ProcessSpec(["python", "-m", "a.module"], env)
    return ShimSpec(process=process, folder=Path("/x"), instance="i", module=module)


@pytest.mark.parametrize(
    ("env", "served"),
    [
        (COMMON, True),
        ({**COMMON, "OTHER": "1", "BAKEMESH_PARAM_X": "2", "TZ": "UTC", "PATH": "/usr/bin"}, True),
        ({**COMMON, "PYTHONPATH": "/lib"}, False),
        ({**COMMON, "PYTHONUNBUFFERED": ""}, False),
        ({**COMMON, "LD_PRELOAD": "x.so"}, False),
        ({**COMMON, "HOME": "/home/me"}, False),
        ({name: value for name, value in COMMON.items() if name != "LANG"}, False),
        ({}, False),
    ],
)
def test_the_interpreter_must_be_the_one_it_would_have(env: dict[str, str], served: bool) -> None:
    assert NURSE.serves(spec(env)) is served


@pytest.mark.parametrize("module", [None, "another.module", "a.module.all"])
def test_others_are_not_its_own_whatever_their_arguments_say(module: str | None) -> None:
    assert not NURSE.serves(spec(COMMON, module))


@given(TEXTS, st.integers(1, 200))
def test_what_is_shown_is_the_beginning_and_fills_the_room(texts: list[bytes], size: int) -> None:
    block = guise.block(texts, size)
    assert len(block) == size
    assert block[-1:] == b"\0"
    whole = b"".join(text + b"\0" for text in texts)
    if len(whole) <= size:
        assert block == whole.ljust(size, b"\0")
    else:
        assert whole.startswith(block.rstrip(b"\0"))


@given(TEXTS.filter(lambda texts: len(texts) > 1), st.integers(30, 200))
def test_nothing_but_the_first_is_shown_in_part(texts: list[bytes], size: int) -> None:
    shown = guise.block(texts, size).rstrip(b"\0").split(b"\0")
    wanted = b"\0".join(texts).rstrip(b"\0").split(b"\0")
    assert shown == wanted[: len(shown)] or shown == [b""]


@pytest.mark.parametrize(
    "numbers", [(0, 0, 0, 0), (100, 200, 300, 90000), (100, 90000, 90000, 90100), (100, 90000, 90000, 90000)]
)
def test_forks_that_could_not_be_known_are_not_made(numbers: tuple[int, ...]) -> None:
    stat = [b"S"] * guise.ARG_START + [b"%d" % number for number in numbers] + [b"0"]
    with pytest.raises(OSError, match="bytes of room for forks"):
        guise.Room(stat)
