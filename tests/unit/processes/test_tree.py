"""The walk that ends a tree: parents first, everything once, whatever the tree does meanwhile."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.keeper import tree

TOP = 1


@st.composite
def trees(draw: st.DrawFn) -> dict[int, list[int]]:
    """A tree of pids below TOP."""
    below: dict[int, list[int]] = {TOP: []}
    for pid in range(2, draw(st.integers(2, 40))):
        below[pid] = []
        below[draw(st.integers(1, pid - 1))].append(pid)
    return below


@given(trees())
def test_everything_is_struck_once_and_parents_first(below: dict[int, list[int]]) -> None:
    struck: list[int] = []
    above = {child: parent for parent, children in below.items() for child in children}

    def strike(pid: int, parent: int) -> None:
        assert above[pid] == parent
        assert parent == TOP or parent in struck
        struck.append(pid)

    count = tree.fell(TOP, lambda pid: below[pid], strike)
    assert sorted(struck) == sorted(set(below) - {TOP})
    assert count == len(struck)


@given(trees())
def test_children_are_read_after_their_parent_was_struck(below: dict[int, list[int]]) -> None:
    struck = {TOP}

    def children_of(pid: int) -> list[int]:
        assert pid in struck, "a fork between the two would be missed for good"
        return below[pid]

    tree.fell(TOP, children_of, lambda pid, _: struck.add(pid))


@given(trees())
def test_processes_that_fork_until_they_are_struck_do_not_outrun_the_walk(
    below: dict[int, list[int]],
) -> None:
    struck: set[int] = set()
    new = [1000]

    def strike(pid: int, _: int) -> None:
        struck.add(pid)
        for other in list(below):
            if other not in struck and other != TOP and len(below) < 400:
                new[0] += 1
                below[new[0]] = []
                below[other].append(new[0])

    tree.fell(TOP, lambda pid: below[pid], strike)
    assert struck == set(below) - {TOP}


@given(trees(), st.data())
def test_spared_children_and_what_is_below_them_are_left_alone(
    below: dict[int, list[int]], data: st.DataObject
) -> None:
    spared = set(data.draw(st.lists(st.sampled_from(below[TOP] or [0]))))
    kept: set[int] = set()
    tree.fell(TOP, lambda pid: [p for p in below[pid] if pid != TOP or p in spared], lambda p, _: kept.add(p))
    struck: set[int] = set()
    tree.fell(TOP, lambda pid: below[pid], lambda pid, _: struck.add(pid), spared)
    assert struck == set(below) - {TOP} - kept


def test_a_pid_that_comes_up_twice_does_not_make_the_walk_endless() -> None:
    below = {1: [2], 2: [3], 3: [2, 1]}
    struck: list[int] = []
    assert tree.fell(1, lambda pid: below[pid], lambda pid, _: struck.append(pid)) == 2
    assert struck == [2, 3]


def test_only_kill_counts_as_killed() -> None:
    assert tree.killed(9)
    assert not tree.killed(15)
    assert not tree.killed(9 << 8)  # exit code 9


@given(trees())
def test_term_reaches_what_a_parent_leaves_that_dies_of_it_at_once(below: dict[int, list[int]]) -> None:
    everything = set(below) - {TOP}
    struck: list[int] = []

    def strike(pid: int, _: int) -> None:
        struck.append(pid)
        for children in below.values():
            if pid in children:
                children.remove(pid)
        below[TOP] += below.pop(pid)  # the subreaper's from now on

    tree.terminate_all(TOP, lambda: lambda pid: list(below.get(pid, [])), strike)
    assert sorted(struck) == sorted(everything)


def test_term_comes_to_an_end_with_a_tree_that_forks_for_ever() -> None:
    below: dict[int, list[int]] = {TOP: [2]}

    def strike(pid: int, _: int) -> None:
        below[TOP].append(pid + 1)

    tree.terminate_all(TOP, lambda: lambda pid: list(below.get(pid, [])), strike)
    assert len(below[TOP]) < 100
