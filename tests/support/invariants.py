"""What must be true after any fault, as pure functions: facts in, what is broken out (empty: it holds).

Facts are what lies in the streams, read past the SDK (which would hide what comes twice), what steps and
components wrote themselves into files, and what `/proc` shows. Left out: gathering them (`kills`).
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bakemesh.protocol.builder.messages import BakeData, BakeOutcome, BakeStatus


@dataclass(frozen=True)
class PlannedStep:
    """A step as it was ordered: what it must write when it runs to its end."""

    retryable: bool
    output: bytes


@dataclass(frozen=True)
class Story:
    """One accepted recipe: its plan, and everything the streams hold of it, as stored."""

    recipe_id: str
    steps: Sequence[PlannedStep]
    statuses: Sequence[BakeStatus]
    chunks: Sequence[BakeData]
    runs: Mapping[int, int] = field(default_factory=dict)  # step → how often its program began


def line_of(tag: str, number: int) -> bytes:
    """What a step of these tests writes as line `number`: nobody else can have written it."""
    return b"%06d %s\n" % (number, hashlib.sha256(f"{tag} {number}".encode()).hexdigest().encode())


def output_of(tag: str, lines: int) -> bytes:
    """All of it."""
    return b"".join(line_of(tag, number) for number in range(lines))


def broken_in(story: Story) -> list[str]:
    """Everything that is wrong with one bake."""
    found = [
        *one_terminal(story.statuses),
        *serials_once(story.statuses),
        *no_silent_repeat(story.steps, story.runs, story.statuses),
        *data_whole(story.steps, story.chunks, story.statuses),
    ]
    return [f"{story.recipe_id}: {each}" for each in found]


def one_terminal(statuses: Sequence[BakeStatus]) -> list[str]:
    """Exactly one outcome that is final, and nothing after it."""
    finals = [status for status in statuses if isinstance(status, BakeOutcome) and status.final]
    if len(finals) != 1:
        return [f"{len(finals)} terminal outcomes: {[each.type for each in finals]}"]
    if statuses[-1] is not finals[0]:
        return [f"Status after the terminal: {statuses[-1].summary!r}"]
    return []


def serials_once(statuses: Sequence[BakeStatus]) -> list[str]:
    """1..n, each once, in the order of the stream."""
    serials = [status.serial for status in statuses]
    if serials == list(range(1, len(serials) + 1)):
        return []
    twice = [serial for serial, count in Counter(serials).items() if count > 1]
    missing = sorted(set(range(1, max(serials, default=0) + 1)) - set(serials))
    return [f"Status serials are not 1..n: twice {twice}, missing {missing}, order {serials[:40]}"]


def no_silent_repeat(
    steps: Sequence[PlannedStep], runs: Mapping[int, int], statuses: Sequence[BakeStatus]
) -> list[str]:
    """No program of a step began twice, unless its step may be retried; never more often than was said; and
    what is said to have gone well did begin.
    """
    found = []
    begun: Counter[int] = Counter()
    well: Counter[int] = Counter()
    for status in statuses:
        if status.kind == "step" and status.stepindex is not None:
            begun[status.stepindex] += status.outcome is None
            well[status.stepindex] += status.outcome == "ok"
    for index, step in enumerate(steps):
        count = runs.get(index, 0)
        if count > 1 and not step.retryable:
            found.append(f"step {index} is not retryable and ran {count} times")
        if count > begun[index]:
            found.append(f"step {index} ran {count} times, said {begun[index]} times")
        if well[index] > min(count, 1):
            found.append(f"step {index} ended well {well[index]} times, ran {count} times")
    unknown = sorted(set(runs) - set(range(len(steps))))
    return [*found, *(f"step {index} was never ordered and ran" for index in unknown)]


def data_whole(
    steps: Sequence[PlannedStep], chunks: Sequence[BakeData], statuses: Sequence[BakeStatus]
) -> list[str]:
    """seq 1..lastseq in the order of the stream; each attempt's stdout is the beginning of what the step
    writes, and all of it where the attempt ended well; each stream is closed once, at its end.
    """
    found = []
    seqs = [chunk.seq for chunk in chunks]
    lastseq = statuses[-1].lastseq if statuses else None
    if seqs != list(range(1, len(seqs) + 1)):
        found.append(f"Data seqs are not 1..n: {_odd(seqs)}")
    if lastseq != len(seqs):
        found.append(f"the terminal says lastseq {lastseq}, the stream holds {len(seqs)} chunks")
    well = {
        (status.stepindex, status.attempt)
        for status in statuses
        if status.kind == "step" and status.outcome == "ok"
    }
    written: defaultdict[tuple[int, int, str], list[BakeData]] = defaultdict(list)
    for chunk in chunks:
        written[chunk.stepindex, chunk.attempt, chunk.stream].append(chunk)
    for (index, attempt, stream), parts in written.items():
        where = f"step {index}, attempt {attempt}, {stream}"
        finals = [part.finalchunk for part in parts]
        if finals != [False] * (len(finals) - 1) + [True]:
            found.append(
                f"{where}: finalchunk {[i for i, final in enumerate(finals) if final]} of {len(finals)}"
            )
        if stream != "stdout" or index >= len(steps):
            found.append(f"{where}: nobody writes there: {parts[0].data[:200]!r}")
            continue
        whole, wanted = b"".join(part.data for part in parts), steps[index].output
        if not wanted.startswith(whole):
            found.append(
                f"{where}: {len(whole)} bytes differ from what was written at {_differ(whole, wanted)}"
            )
    for index, attempt in sorted(well, key=str):
        parts = written.get((index or 0, attempt or 0, "stdout"), [])
        size, wanted_size = sum(len(part.data) for part in parts), len(steps[index or 0].output)
        if size != wanted_size:
            found.append(f"step {index}, attempt {attempt} ended well with {size} of {wanted_size} bytes")
    return found


def _odd(seqs: Sequence[int]) -> str:
    for place, seq in enumerate(seqs):
        if seq != place + 1:
            return f"seq {seq} at place {place + 1} of {len(seqs)}"
    return "in order"


def _differ(one: bytes, other: bytes) -> int:
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(other))


def ready_once(heard: Iterable[tuple[str, str, bytes]], wanted: Collection[str]) -> list[str]:
    """Each Ready as (NodeID, boot, envelope id), however often it came: one id a node, in one boot, and of
    every wanted node one.
    """
    ids: defaultdict[str, set[tuple[str, bytes]]] = defaultdict(set)
    for node_id, boot, envelope in heard:
        ids[node_id].add((boot, envelope))
    found = [
        f"{len(each)} Readys of node {node_id}: {sorted((boot, one.hex()) for boot, one in each)}"
        for node_id, each in sorted(ids.items())
        if len(each) != 1
    ]
    found += [f"no Ready of node {node_id}" for node_id in sorted(set(wanted) - set(ids))]
    return [*found, *(f"a Ready of node {node_id}" for node_id in sorted(set(ids) - set(wanted)))]


def components_single(living: Iterable[tuple[str, int]], wanted: Collection[str]) -> list[str]:
    """Main processes that live, as (component, pid): one of each wanted component, none of another."""
    pids: defaultdict[str, list[int]] = defaultdict(list)
    for name, pid in living:
        pids[name].append(pid)
    found = [
        f"component {name} lives {len(each)} times: {each}"
        for name, each in sorted(pids.items())
        if len(each) > 1
    ]
    found += [f"component {name} does not live" for name in sorted(set(wanted) - set(pids))]
    return [*found, *(f"component {name} was never ordered" for name in sorted(set(pids) - set(wanted)))]


def never_doubled(begun: Iterable[str]) -> list[str]:
    """What components wrote of themselves: `<name> alone` at each start that found no other one of it."""
    return [f"component start: {line}" for line in begun if not line.endswith(" alone")]


def delivered(posted: Collection[int], received: Collection[int]) -> list[str]:
    """A durable post that was acknowledged reaches its crank at least once."""
    missing = sorted(set(posted) - set(received))
    return (
        [f"{len(missing)} of {len(set(posted))} durable posts never came: {missing[:20]}"] if missing else []
    )
