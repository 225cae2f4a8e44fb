"""A `<module>` step to its spec, as the step starts; and the spec as data."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bakemesh.protocol.builder.spec import ReferenceFailed, Values, expand, load_recipe
from bakemesh.protocol.builder.spec.component import (
    CommandCrank,
    ComponentSpec,
    Parameter,
    ScriptCrank,
    Trigger,
    matches,
)
from bakemesh.protocol.builder.spec.model import ModuleStep, RecipeStep
from bakemesh.protocol.builder.spec.module import ComponentRefused, component_of
from support.specs import only

VALUES = Values(
    node="alpha",
    node_id="a1",
    recipe_id="s-r-1",
    params={"n": "7", "text": "a 'b' ${node} $$", "path": "relative.py", "nothing": "", "word": "x"},
)


def component(inside: str, attributes: str = "") -> ComponentSpec:
    recipe = load_recipe(f'<recipe><module name="m" {attributes}>{inside}</module></recipe>')
    step = recipe.steps[0]
    assert isinstance(step, ModuleStep)
    return component_of(step.xml, lambda text: expand(text, VALUES))


def test_references_are_put_in_once_and_never_split() -> None:
    found = component(
        """<crank command="run ${param:text} $${HOME} '$'"/>
        <parameter name="n" type="Integer" value="${param:n}"/>
        <parameter name="f" type="Float" value="${param:n}.5"/>
        <parameter name="s" type="String" value="${nodeid}"/>
        <env name="A" value="${param:text}"/>
        <health command="probe ${param:text}"/>"""
    )
    assert found.crank == CommandCrank(argv=("run", "a 'b' ${node} $$", "${HOME}", "$"))
    assert found.parameters == (
        Parameter(name="n", value=7),
        Parameter(name="f", value=7.5),
        Parameter(name="s", value="a1"),
    )
    assert found.env == (("A", "a 'b' ${node} $$"),)
    assert found.health is not None
    assert found.health.argv == ("probe", "a 'b' ${node} $$")


def test_a_source_holds_no_references() -> None:
    found = component("<crank script='${param:path}'>x = '${node} $$'</crank>")
    assert found.crank == ScriptCrank(script="relative.py", source="x = '${node} $$'")


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ('<crank command="a"/><parameter name="n" type="Integer" value="${param:word}"/>', "a whole number"),
        ('<crank command="a"/><parameter name="n" type="Float" value="${param:word}"/>', "a finite number"),
        ('<crank script="${param:path}"/>', "'relative.py' is no absolute path"),
        ('<crank command="${param:nothing}"/>', "names no program"),
    ],
)
def test_what_values_make_wrong_fails_the_step(inside: str, said: str) -> None:
    with pytest.raises(ComponentRefused, match=said):
        component(inside)


def test_a_reference_that_cannot_be_put_in_says_so_itself() -> None:
    with pytest.raises(ReferenceFailed):
        component('<crank command="a ${param:unknown}"/>')


@pytest.mark.parametrize("xml", ["", "<module", "<cli command='a'/>", "<module name='m'/>", "<recipe/>"])
def test_what_is_no_module_is_refused(xml: str) -> None:
    with pytest.raises(ComponentRefused):
        component_of(xml, str)


def test_defaults_are_those_of_the_spec() -> None:
    assert component('<crank command="a"/>') == ComponentSpec(name="m", crank=CommandCrank(argv=("a",)))


SHARING = """<recipe>
  <module name="a"><crank script="a.py">x = 1</crank></module>
  <module name="b"><crank script="a.py" source-of="a"/></module>
  {}
</recipe>"""


def test_a_source_is_shared_within_a_recipe() -> None:
    inner = """<recipe node="x"><module name="c"><crank script="c.py">x = 3</crank></module>
      <module name="d"><crank script="c.py" source-of="c"/></module></recipe>"""
    _, b, step = load_recipe(SHARING.format(inner)).steps
    assert isinstance(b, ModuleStep)
    assert component_of(b.xml, str).crank == ScriptCrank(script="a.py", source="x = 1")
    assert isinstance(step, RecipeStep)
    d = step.recipe.steps[1]
    assert isinstance(d, ModuleStep)
    assert component_of(d.xml, str).crank == ScriptCrank(script="c.py", source="x = 3")
    assert step.xml.count("x = 3") == 1, "the other node puts it in itself"
    there = load_recipe(step.xml).steps[1]
    assert isinstance(there, ModuleStep)
    assert there.xml == d.xml


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ('<module name="c"><crank script="a.py" source-of="A"/></module>', "did you mean 'a'?"),
        ('<module name="c"><crank script="a.py" source-of="a">x</crank></module>', "stands here already"),
        (
            '<recipe node="x"><module name="c"><crank script="a.py" source-of="a"/></module></recipe>',
            "no module 'a' before this one",
        ),
    ],
)
def test_a_source_that_cannot_be_shared(step: str, said: str) -> None:
    assert said in only(SHARING.format(step)).message


def test_shared_sources_are_bounded() -> None:
    large = "#" * 900_000
    shared = "".join(f'<module name="m{n}"><crank script="a.py" source-of="m"/></module>' for n in range(100))
    xml = f'<recipe><module name="m"><crank script="a.py">{large}</crank></module>{shared}</recipe>'
    assert "over 16,777,216 characters" in only(xml).message


@pytest.mark.parametrize(
    ("pattern", "type_", "taken"),
    [
        ("A.B", "A.B", True),
        ("A.B", "A.b", False),
        ("A.*", "A.B", True),
        ("A.*", "A", False),
        ("A.*", "A.B.C", False),
        ("*", "A", True),
        ("*.B.*", "A.B.C", True),
        ("*.B.*", "A.C.C", False),
    ],
)
def test_what_a_trigger_takes(pattern: str, type_: str, taken: bool) -> None:
    assert matches(pattern, type_) is taken


def test_the_digest_tells_specs_apart() -> None:
    spec = ComponentSpec(name="m", crank=ScriptCrank(script="a.py", source="x"))
    others = [
        replace(spec, name="n"),
        replace(spec, crank=ScriptCrank(script="a.py", source="y")),
        replace(spec, crank=ScriptCrank(script="a.py")),
        replace(spec, crank=CommandCrank(argv=("a.py",))),
        replace(spec, ready_ms=999),
        replace(spec, triggers=(Trigger(name="t", type="A"),)),
        replace(spec, triggers=(Trigger(name="t", type="A", durable=("A",)),)),
        replace(spec, parameters=(Parameter(name="p", value=1),)),
        replace(spec, parameters=(Parameter(name="p", value=1.0),)),
        replace(spec, parameters=(Parameter(name="p", value="1"),)),
    ]
    assert len({spec.digest, *(other.digest for other in others)}) == 1 + len(others)


def test_a_digest_stays_over_versions() -> None:
    """What is journaled today is compared with what a later version reads."""
    assert ComponentSpec(name="m", crank=CommandCrank(argv=("a",))).digest == "f441052e5774227d"
    spec = ComponentSpec(name="m", crank=CommandCrank(argv=("a",)))
    newer = json.dumps({**json.loads(spec.to_json()), "of-tomorrow": 1})
    assert ComponentSpec.from_json(newer) == spec


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"crank": {"kind": "Other"}}', '{"crank": 5}'])
def test_what_is_no_spec_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        ComponentSpec.from_json(text)
