"""Groups by node, and the recipe of a group."""

from __future__ import annotations

import pytest

from bakemesh.protocol.builder.spec import load_recipe
from bakemesh.protocol.builder.spec.component import CommandCrank, ComponentSpec, ScriptCrank
from bakemesh.protocol.builder.spec.model import AttachStep, ModuleStep
from bakemesh.protocol.builder.spec.module import component_of
from bakemesh.protocol.psyspec import Group, PsySpec, PsySpecRefused, bringup, element_of, groups, unsettled
from support.psyspecs import SCRIPT, loaded, module

NODES = "<node name='alpha' id='a1'/><node name='beta' id='b1'/><node name='gamma'/>"
SYSTEM = loaded(
    NODES
    + module("here")
    + module("one", "node='alpha'")
    + module("two", "node='beta'")
    + module("three", "node='gamma'")
    + module("four", "node='alpha'")
)


def shape(psyspec: PsySpec, node: str, node_id: str) -> list[tuple[str, str | None, bool, str]]:
    return [
        (group.node, group.node_id, group.local, " ".join(entry.spec.name for entry in group.modules))
        for group in groups(psyspec, node, node_id)
    ]


@pytest.mark.parametrize(
    ("node", "node_id", "wanted"),
    [
        (
            "alpha", "a1",
            [
                ("alpha", "a1", True, "here one four"),
                ("beta", "b1", False, "two"),
                ("gamma", None, False, "three"),
            ],
        ),
        (  # the id decides where there is one
            "beta", "a1",
            [
                ("beta", "a1", True, "here one four"),
                ("beta", "b1", False, "two"),
                ("gamma", None, False, "three"),
            ],
        ),
        (  # the name, where there is none
            "gamma", "g9",
            [
                ("gamma", "g9", True, "here three"),
                ("alpha", "a1", False, "one four"),
                ("beta", "b1", False, "two"),
            ],
        ),
        (  # a node that is not in it
            "delta", "d1",
            [
                ("delta", "d1", True, "here"),
                ("alpha", "a1", False, "one four"),
                ("beta", "b1", False, "two"),
                ("gamma", None, False, "three"),
            ],
        ),
    ],
)  # fmt: skip
def test_modules_by_node(node: str, node_id: str, wanted: list[tuple[str, str | None, bool, str]]) -> None:
    assert shape(SYSTEM, node, node_id) == wanted


def test_the_local_group_is_there_though_it_is_empty() -> None:
    system = loaded(NODES + module("two", "node='beta'"))
    local, _ = groups(system, "alpha", "a1")
    assert (local.local, local.modules) == (True, ())
    with pytest.raises(ValueError, match="nothing of node alpha"):
        bringup(local)


MIXED = "<node name='x'/><node name='y'/>"


@pytest.mark.parametrize(
    ("one", "other", "here", "there"),
    [
        ("", "node='x'", "node x", "the node whose PsySpec it is, here y"),
        ("node='x'", "", "the node whose PsySpec it is, here y", "node x"),
    ],
)
def test_a_module_without_a_node_depends_on_one_with_a_node_where_it_is_the_same(
    one: str, other: str, here: str, there: str
) -> None:
    system = loaded(MIXED + module("a", one) + "\n" + module("b", f"{other} depends='a'"))
    (local,) = groups(system, "x", "x1")
    assert [step.name for step in load_recipe(bringup(local)).steps] == ["a", "ready-a", "b", "ready-b"]
    with pytest.raises(PsySpecRefused) as caught:
        groups(system, "y", "y1")
    (problem,) = caught.value.problems
    assert (problem.line, problem.element, problem.attribute) == (2, "module", "depends")
    assert f"'a' is on {there}, this one on {here}; order is kept within a node alone" in problem.message
    (warning,) = unsettled(system)
    assert "only the Startup Supervisor of node x takes this" in warning.message
    assert not unsettled(SYSTEM)


def group_of(inside: str) -> Group:
    return groups(loaded(inside), "alpha", "a1")[0]


def test_levels_start_side_by_side_one_after_the_other() -> None:
    group = group_of(
        module("c", "depends='a,b'") + module("a") + module("d", "depends='c'") + module("b") + module("e")
    )
    steps = load_recipe(bringup(group)).steps
    shown = [
        f"+{step.module}" if isinstance(step, ModuleStep) else f"={step.module}"
        for step in steps
        if isinstance(step, ModuleStep | AttachStep)
    ]
    assert shown == ["+a", "+b", "+e", "=a", "=b", "=e", "+c", "=c", "+d", "=d"]
    assert [step.wait for step in steps if isinstance(step, ModuleStep)] == [False] * 5
    only = load_recipe(bringup(group, {"c", "b"})).steps
    assert [step.name for step in only] == ["b", "ready-b", "c", "ready-c"]


def test_steps_of_modules_with_awkward_names() -> None:
    group = group_of(module("a") + module("ready-a") + module("ready-a-") + module("attach-0"))
    assert len({step.name for step in load_recipe(bringup(group)).steps}) == 8


def test_a_shared_script_stands_in_the_recipe_once_and_comes_to_each() -> None:
    script = f"<crank script='a.py'>{SCRIPT}</crank>"
    group = group_of(module("b", "depends='a'", script) + module("a", inside=script))
    recipe = bringup(group)
    assert recipe.count("async def crank") == 1
    found = [
        component_of(step.xml, str) for step in load_recipe(recipe).steps if isinstance(step, ModuleStep)
    ]
    assert [spec.crank for spec in found] == [ScriptCrank(script="a.py", source=SCRIPT)] * 2


def test_a_group_has_the_digest_of_its_modules() -> None:
    one, other = group_of(module("a") + module("b")), group_of(module("a") + module("b", "ready-ms='9'"))
    assert one.digest == group_of("<!-- x -->" + module("a") + module("b")).digest
    assert one.digest != other.digest


def test_dollars_are_kept_from_references() -> None:
    spec = ComponentSpec(
        name="m", crank=CommandCrank(argv=("echo", "${node}", "$$", "it's")), env=(("A", "${param:x}"),)
    )
    xml = element_of(spec)
    assert "$${node}" in xml
    step = load_recipe(f"<recipe>{xml}</recipe>", params=()).steps[0]
    assert isinstance(step, ModuleStep)
    assert component_of(step.xml, lambda text: text.replace("$$", "$")) == spec
