"""PsySpecs for tests: read, refused, and made at random."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from bakemesh.protocol.builder.spec.component import (
    CommandCrank,
    ComponentSpec,
    Health,
    Parameter,
    Post,
    ScriptCrank,
    ServiceCrank,
    Trigger,
)
from bakemesh.protocol.builder.spec.document import write
from bakemesh.protocol.builder.spec.problems import Problem
from bakemesh.protocol.psyspec import PsySpec, PsySpecRefused, load_psyspec
from bakemesh.protocol.psyspec.bringup import module_node

SCRIPT = "async def crank(api):\n    pass\n"
CRANK = '<crank command="run"/>'


def psyspec(inside: str, attributes: str = 'name="demo"') -> str:
    """A PsySpec's text, all in one line."""
    return f"<psySpec {attributes}>{inside}</psySpec>"


def module(name: str, attributes: str = "", inside: str = CRANK) -> str:
    """A module's."""
    return f'<module name="{name}" {attributes}>{inside}</module>'


def loaded(inside: str, attributes: str = 'name="demo"') -> PsySpec:
    """The PsySpec that holds `inside`."""
    return load_psyspec(psyspec(inside, attributes))


def refused(text: str, **how: Any) -> tuple[Problem, ...]:
    """What is said of a PsySpec that is refused."""
    with pytest.raises(PsySpecRefused) as caught:
        load_psyspec(text, **how)
    return caught.value.problems


def only(text: str) -> Problem:
    """The one problem of a PsySpec; fails where there are more."""
    problems = refused(text)
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


def as_psyspec(*specs: ComponentSpec, before: str = "") -> str:
    """A PsySpec of these components, texts written as a PsySpec takes them: `$` as it is, `%` doubled."""
    written: list[str] = []
    for spec in specs:
        node = module_node(spec, {})
        for each in (node, *node.children):
            for name, text in each.attributes.items():
                each.attributes[name] = text.replace("$$", "$").replace("%", "%%")
        written.append(write(node))
    return psyspec(before + "\n".join(written))


# Any text that XML can carry. The parameter's name is the one free text whose '$' is never doubled.
TEXT = st.text(
    st.characters(
        exclude_categories=["Cs", "Cc"], include_characters="\t\n\r", exclude_characters="\ufffe\uffff"
    ),
    max_size=12,
) | st.sampled_from(["$", "$$", "${node}", "$${x}", "%", "%%", "%a%", "]]>", "<&>", "'", '"', "\\", "a b"])
NAME = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True)
SEGMENT = st.from_regex(r"[A-Za-z0-9_-]{1,5}", fullmatch=True)
TYPE = st.lists(SEGMENT, min_size=1, max_size=3).map(".".join)
PATTERN = st.lists(SEGMENT | st.just("*"), min_size=1, max_size=3).map(".".join)
MS = st.integers(1, 10**12)
WORDS = st.tuples(TEXT.filter(bool), st.lists(TEXT, max_size=3)).map(lambda made: (made[0], *made[1]))
SOURCE = st.tuples(TEXT, st.just("\ndef crank(api): ..."), TEXT).map("".join)
VALUES = st.one_of(TEXT, st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))


def unique(strategy: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    """A few, no name twice."""
    return st.lists(strategy, max_size=most, unique_by=lambda made: made.name).map(tuple)


CRANKS = st.one_of(
    st.builds(
        ScriptCrank,
        script=TEXT.filter(bool),
        function=st.sampled_from(["crank", "main", "été"]),
        source=SOURCE,
    ),
    st.builds(ScriptCrank, script=TEXT.map("/".__add__)),
    st.builds(CommandCrank, argv=WORDS),
    st.builds(ServiceCrank, service=st.sampled_from(["synapse", "lanes", "axon", "dashboard"])),
)
HEALTHS = st.one_of(
    st.none(),
    st.builds(Health, argv=WORDS, interval_ms=MS, timeout_ms=MS, misses=st.integers(1, 1000)),
    st.builds(Health, subject=TYPE),
)
COMPONENTS = st.builds(
    ComponentSpec,
    name=NAME,
    crank=CRANKS,
    description=TEXT.map(str.strip),
    supervisor=st.booleans(),
    parameters=unique(
        st.builds(Parameter, name=TEXT.filter(lambda name: name and "$" not in name), value=VALUES)
    ),
    triggers=unique(st.builds(Trigger, name=NAME, type=PATTERN, after_ms=st.integers(0, 10**12))),
    posts=unique(st.builds(Post, name=NAME, type=TYPE, durable=st.booleans())),
    restart=st.sampled_from(["always", "on-failure", "never"]),
    max_restarts=st.integers(0, 10**6),
    restart_window_ms=MS,
    shutdown_ms=st.integers(0, 10**12),
    ready_ms=st.integers(0, 10**12),
    health=HEALTHS,
    env=st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True), TEXT, max_size=2).map(
        lambda made: tuple(made.items())
    ),
    memory_max_bytes=st.none() | st.integers(1, 1 << 50),
    cpu_share=st.none() | st.floats(1e-12, 100_000),
)

# Small ones, for what holds among several: names, scripts that are shared, types that meet.
_FEW_TYPES = ["A", "A.B", "A.C", "B.C"]
SMALL = st.builds(
    ComponentSpec,
    name=st.from_regex(r"[a-d]|ready-[a-d]", fullmatch=True),
    crank=st.sampled_from(
        [
            CommandCrank(argv=("run", "$a b", "")),
            ScriptCrank(script="a.py", source=SCRIPT),
            ScriptCrank(script="b.py", source=SCRIPT + "# ]]> $$ %d\r\n"),
            ServiceCrank(service="axon"),
        ]
    ),
    posts=unique(st.builds(Post, name=NAME, type=st.sampled_from(_FEW_TYPES), durable=st.booleans()), most=1),
    triggers=unique(st.builds(Trigger, name=NAME, type=st.sampled_from([*_FEW_TYPES, "A.*", "*.*"])), most=1),
)
SYSTEMS = st.lists(SMALL, min_size=1, max_size=5, unique_by=lambda spec: spec.name)
