"""Runs of numbers: each once, doubling in length, never beyond what was won."""

from __future__ import annotations

from bakemesh.supervisor.mint import LONGEST_RUN, Runs


def test_runs_double_and_hand_out_what_they_were_given() -> None:
    runs, handed, lengths, first = Runs(), list[int](), list[int](), 100
    assert runs.take() is None
    for _ in range(9):
        count = runs.wanted()
        lengths.append(count)
        runs.refill(first, count)
        while (number := runs.take()) is not None:
            handed.append(number)
        first += count + 7  # somebody else took some
    assert lengths == [1, 2, 4, 8, 16, 32, 64, LONGEST_RUN, LONGEST_RUN]
    assert len(handed) == len(set(handed)) == sum(lengths)
    assert handed[:4] == [100, 108, 109, 117]
