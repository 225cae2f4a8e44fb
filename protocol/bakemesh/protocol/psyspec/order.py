"""What depends on what: levels that start side by side, and cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


def levels(depends: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Names in levels: each depends on names of earlier levels alone. In a level: the order given.

    Names that are not keys do not count. `depends` must be free of cycles (`cycles`).
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


def cycles(depends: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Cycles, each as the names in the order of dependence, the first one again at the end.

    Not all of them, but some of each knot; when all that are said are cut there may be others. None: `levels`
    can be asked. One at a time, for who has heard enough.
    """
    done: set[str] = set()
    for start in depends:
        if start in done:
            continue
        path = {start: 0}  # in order, with the place of each
        open_ = [(start, iter(depends[start]))]
        while open_:
            name, waits = open_[-1]
            for each in waits:
                if each in path:
                    yield (*list(path)[path[each] :], each)
                elif each in depends and each not in done:
                    path[each] = len(path)
                    open_.append((each, iter(depends[each])))
                    break
            else:
                done.add(name)
                del path[name]
                open_.pop()
