"""Which node gets a request: the one that is done first, shared out where that is not sure."""

from __future__ import annotations

import heapq
import random
import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.inference.choosing import LEAST_DOUBT_S, NEAR, Forecast, Load, choose

seconds = st.floats(0, 1000)
loads = st.lists(
    st.builds(Load, st.text(max_size=3), seconds, st.floats(0.1, 1e6), st.floats(0, 10)),
    min_size=1,
    max_size=8,
)
draws = st.floats(0, 1, exclude_max=True)


@given(loads, st.floats(0, 1e6), draws)
def test_it_is_one_of_them_and_never_one_that_is_surely_later(nodes: list[Load], tokens: float, draw: float):
    chosen = choose(nodes, tokens, draw)
    assert chosen in nodes
    best = min(node.counts_s(tokens) for node in nodes)
    assert chosen.counts_s(tokens) - best <= NEAR * max(LEAST_DOUBT_S, chosen.doubt_s) * (1 + 1e-9)


@given(seconds, st.floats(0.1, 1e6), draws)
def test_the_only_one_is_chosen_however_long_it_takes(wait: float, rate: float, draw: float):
    only = Load("a", wait, rate)
    assert choose([only], 1e9, draw) is only


def share(nodes: list[Load], tokens: float = 0.0) -> dict[str, float]:
    """How often each is drawn."""
    counts = Counter(choose(nodes, tokens, n / 1000).node_id for n in range(1000))
    return {name: count / 1000 for name, count in counts.items()}


def test_equals_share_as_their_rates_are():
    found = share([Load("slow", 0.1, 100), Load("fast", 0.1, 200)])
    assert found["fast"] == pytest.approx(2 / 3, abs=0.01)


def test_a_small_lead_is_enough_where_forecasts_are_sure_and_not_where_they_are_not():
    def lead(doubt: float) -> float:
        return share([Load("late", 0.12, 100, doubt), Load("soon", 0.1, 100, doubt)])["soon"]

    assert lead(0.002) == 1.0
    assert 0.5 < lead(0.1) < 0.6
    assert lead(0.002) >= lead(0.01) >= lead(0.05) >= lead(0.1)


def test_large_work_goes_where_it_is_done_first_though_it_begins_later():
    nodes = [Load("idle", 0.0, 10), Load("fast", 0.5, 1000)]
    assert choose(nodes, 1, 0.5).node_id == "idle"
    assert choose(nodes, 1000, 0.5).node_id == "fast"


def wait(forecast: Forecast, now: float, *, bulk: bool = False) -> float:
    return forecast.load("n", now, bulk=bulk).wait_s


def test_what_is_sent_moves_the_forecast_and_time_brings_it_back():
    forecast = Forecast()
    forecast.told(10.0, 0.5, 100, 100.0, 1)
    assert wait(forecast, 10.0, bulk=False) == pytest.approx(0.5)
    assert wait(forecast, 10.0, bulk=True) == pytest.approx(1.0)  # the backlog is before it
    forecast.sent(10.0, 50, bulk=False)
    assert wait(forecast, 10.0, bulk=False) == pytest.approx(1.0)
    assert wait(forecast, 10.4, bulk=False) == pytest.approx(0.6)
    assert wait(forecast, 99.0, bulk=False) == 0.0


def test_bulk_delays_bulk_alone():
    forecast = Forecast()
    forecast.told(0.0, 0.0, 0, 100.0, 1)
    forecast.sent(0.0, 500, bulk=True)
    assert wait(forecast, 0.0, bulk=False) == 0.0
    assert wait(forecast, 0.0, bulk=True) == pytest.approx(5.0)


def test_what_others_send_is_learnt_as_bias_and_how_it_varies_as_doubt():
    alone, steady, wild = Forecast(), Forecast(), Forecast()
    for n in range(80):
        now = n * 0.25
        alone.told(now, 0.0, 0, 100.0, 1)
        steady.told(now, 0.4, 0, 100.0, 1)  # though it had time to do all but 0.15 s of it
        wild.told(now, 0.4 * (n % 2), 0, 100.0, 1)
    assert alone.load("n", now + 0.2, bulk=False) == Load("n", 0.0, 100.0, LEAST_DOUBT_S)
    assert steady.load("n", now, bulk=False).wait_s == pytest.approx(0.4)
    assert steady.load("n", now + 0.25, bulk=False).wait_s == pytest.approx(0.4, abs=0.01)
    assert steady.interactive.doubt_s < 0.01 < 0.1 < wild.interactive.doubt_s


def test_a_node_without_lanes_or_without_a_rate_is_not_taken_for_a_fast_one():
    forecast = Forecast()
    forecast.told(0.0, 0.0, 0, 0.0, 0)
    assert wait(forecast, 0.0, bulk=False) >= 10
    assert forecast.rate > 0


class World:
    """Two nodes whose queues are simulated to the event, and clients who know what Status tells four times a
    second. A quantum is what the fast node does in 10 ms."""

    RATES = (2000.0, 1000.0)

    def __init__(self, clients: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.clients = [[Forecast(), Forecast()] for _ in range(clients)]
        self.free = [0.0, 0.0]
        self.waits: list[list[float]] = [[], []]

    def run(self, load: float, seconds: float, tokens: float = 20.0) -> tuple[float, float]:
        """The median queue time of each node, at this share of their joint capacity."""
        every = tokens / (load * sum(self.RATES))
        events: list[tuple[float, int]] = [(0.25 * n, -1) for n in range(int(seconds * 4))]
        at = 0.0
        while at < seconds:
            at += self.random.expovariate(1 / every)
            events.append((at, self.random.randrange(len(self.clients))))
        heapq.heapify(events)
        while events:
            now, who = heapq.heappop(events)
            if who < 0:
                self._tell(now)
            else:
                self._send(now, self.clients[who], tokens)
        return statistics.median(self.waits[0]), statistics.median(self.waits[1])

    def _tell(self, now: float) -> None:
        for forecasts in self.clients:
            for node, forecast in enumerate(forecasts):
                wait = max(0.0, self.free[node] - now)
                forecast.told(now, int(wait * 1000) / 1000, wait * self.RATES[node], self.RATES[node], 1)

    def _send(self, now: float, forecasts: list[Forecast], tokens: float) -> None:
        nodes = [each.load(str(n), now, bulk=False) for n, each in enumerate(forecasts)]
        chosen = int(choose(nodes, tokens, self.random.random()).node_id)
        forecasts[chosen].sent(now, tokens, bulk=False)
        begins = max(now, self.free[chosen])
        self.waits[chosen].append(begins - now)
        self.free[chosen] = begins + tokens / self.RATES[chosen]


@pytest.mark.parametrize("clients", [1, 4, 64])
def test_at_80_percent_of_two_unlike_nodes_their_queues_are_alike(clients: int):
    """Medians within 1.5 times, or within a quarter of what one request takes on the slow node."""
    quantum = 20.0 / World.RATES[1]
    for seed in range(3):
        fast, slow = World(clients, seed).run(0.8, 120.0)
        low, high = sorted((fast, slow))
        assert high <= 1.5 * low or high - low <= quantum / 4, (clients, seed, fast, slow)
