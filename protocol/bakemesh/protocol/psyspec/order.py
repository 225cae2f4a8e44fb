"""What depends on what: levels that start side by side, and cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def levels(depends: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Names in levels: each depends on names of earlier levels alone. In a level: the order given.

    Names that are not keys do not count. `depends` must be free of cycles (`cycle`).
    """
    depth: dict[str, int] = {}
    for name in depends:
        stack = [name]
        while stack:
            top = stack.pop()
            if top in depth:
                continue
            inner = [each for each in depends[top] if each in depends]
            if waits := [each for each in inner if each not in depth]:
                stack += [top, *waits]
            else:
                depth[top] = 1 + max((depth[each] for each in inner), default=-1)
    found: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for name in depends:
        found[depth[name]].append(name)
    return tuple(map(tuple, found))


def cycles(depends: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """Cycles, each as the names in the order of dependence, the first one again at the end.

    One a knot: when all that are said are cut there may be others. Empty: `levels` can be asked.
    """
    found: list[tuple[str, ...]] = []
    done: set[str] = set()
    for start in depends:
        path: list[str] = []
        on_path: dict[str, int] = {}
        open_: list[tuple[str, int]] = [(start, 0)] if start not in done else []
        while open_:
            name, at = open_.pop()
            if at == 0:
                on_path[name] = len(path)
                path.append(name)
            waits = [each for each in depends[name] if each in depends]
            if at < len(waits):
                open_.append((name, at + 1))
                each = waits[at]
                if each in on_path:
                    found.append((*path[on_path[each] :], each))
                elif each not in done:
                    open_.append((each, 0))
            else:
                done.add(name)
                path.pop()
                del on_path[name]
    return found
