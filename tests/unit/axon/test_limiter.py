"""What one hotkey may have, and that a million of them take no more memory than the limit says."""

from __future__ import annotations

import psutil
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.axon.limiter import Clients, Gate


def test_a_burst_and_then_the_rate() -> None:
    clients = Clients(rate=10, at_once=1000, most=100)
    assert [clients.enter("a", 0.0) for _ in range(20)] == [None] * 20
    busy = clients.enter("a", 0.0)
    assert busy is not None
    assert 0 < busy.retry_after_s <= 0.1
    assert clients.enter("a", busy.retry_after_s + 1e-9) is None
    assert clients.enter("b", 0.0) is None


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 5, allow_nan=False), st.booleans()), max_size=80),
    st.integers(1, 20),
)
def test_nobody_has_more_than_burst_and_rate_or_than_at_once(
    steps: list[tuple[str, float, bool]], rate: int
) -> None:
    clients = Clients(rate=rate, at_once=3, most=100)
    now, let_in, running = 0.0, dict.fromkeys("abc", 0), dict.fromkeys("abc", 0)
    for hotkey, passed, leaves in steps:
        now += passed
        if leaves and running[hotkey]:
            clients.leave(hotkey)
            running[hotkey] -= 1
        if clients.enter(hotkey, now) is None:
            let_in[hotkey] += 1
            running[hotkey] += 1
        assert running[hotkey] <= 3
        assert let_in[hotkey] <= max(1.0, rate * 2) + now * rate + 1e-6


def test_no_rate_is_no_limit_and_a_clock_that_goes_back_gives_nothing() -> None:
    free = Clients(rate=0, at_once=1 << 30, most=10)
    assert all(free.enter("a", 0.0) is None for _ in range(1000))
    clients = Clients(rate=1, at_once=100, most=10)
    assert clients.enter("a", 100.0) is None
    assert clients.enter("a", 0.0) is None
    assert clients.enter("a", 0.0) is not None


def test_a_million_hotkeys_take_no_more_memory_than_the_limit() -> None:
    clients = Clients(rate=10, at_once=4, most=1000)
    begun = held = 0
    for number in range(1_000_000):
        hotkey = f"{number:048d}"
        clients.enter(hotkey, number * 1e-6)
        clients.leave(hotkey)
        if number == 10_000:
            begun = psutil.Process().memory_info().rss
    held = psutil.Process().memory_info().rss
    assert len(clients) == 1000
    assert held - begun < 8 << 20  # with all of them it would be hundreds of megabytes


def test_who_has_something_running_is_not_forgotten() -> None:
    clients = Clients(rate=1, at_once=1, most=2)
    assert clients.enter("runs", 0.0) is None
    for number in range(10):
        other = f"other {number}"
        assert clients.enter(other, 0.0) is None
        clients.leave(other)
    assert clients.enter("runs", 0.0) is not None
    clients.leave("runs")


def test_where_all_have_something_running_one_more_is_remembered_all_the_same() -> None:
    clients = Clients(rate=0, at_once=1, most=2)
    for hotkey in "abc":
        assert clients.enter(hotkey, 0.0) is None
    assert len(clients) == 3
    for hotkey in "abc":
        clients.leave(hotkey)
    clients.enter("d", 0.0)
    assert len(clients) == 2


def test_a_gate_is_full_at_its_number() -> None:
    gate = Gate(1)
    assert not gate.full
    gate.running += 1
    assert gate.full
