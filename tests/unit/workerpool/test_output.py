"""The ring of a worker's output."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.workerpool.output import Ring

chunks = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=50)), max_size=40)


def test_lines_are_tagged_in_the_order_in_which_they_ended():
    ring = Ring(1000)
    ring.put("stdout", b"one\nhal")
    ring.put("stderr", b"oops\r\n")
    ring.put("stdout", b"f\nrest")
    assert ring.tail(1000) == "[stdout] one\n[stderr] oops\n[stdout] half\n[stdout] rest"


@given(chunks, st.integers(1, 100), st.integers(1, 200))
def test_memory_and_what_is_told_are_capped(chunks, cap, most):
    ring = Ring(cap)
    for stream, chunk in chunks:
        ring.put(stream, chunk)
    assert sum(len(chunk) for _, chunk in ring._chunks) <= cap
    assert len(ring.tail(most).encode()) <= most


@given(chunks)
def test_with_room_enough_every_line_is_told(chunks):
    ring = Ring(1 << 20)
    for stream, chunk in chunks:
        ring.put(stream, chunk)
    told = ring.tail(1 << 20)
    for stream in ("stdout", "stderr"):
        whole = b"".join(chunk for name, chunk in chunks if name == stream)
        raw = whole.split(b"\n")
        raw = raw if raw[-1] else raw[:-1]
        wanted = [f"[{stream}] " + line.removesuffix(b"\r").decode(errors="replace") for line in raw]
        assert [line for line in told.split("\n") if line.startswith(f"[{stream}]")] == wanted


def test_a_cut_line_is_left_out_for_its_tag_is_lost():
    ring = Ring(1000)
    ring.put("stdout", b"a long first line\nlast\n")
    assert ring.tail(20) == "[stdout] last"
