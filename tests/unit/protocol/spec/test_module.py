"""Modules in a recipe: checked like those of a PsySpec, though another room runs them."""

import pytest

from bakemesh.protocol.builder.spec import load_recipe
from bakemesh.protocol.builder.spec.model import ModuleStep
from support.specs import only


def module(inside, attributes='name="counter"'):
    return f"<recipe><module {attributes}>{inside}</module></recipe>"


CRANK = '<crank script="counter.py" function="crank">def crank(api): ...</crank>'


def test_a_whole_module():
    xml = module(
        """<description>Counts &lt;presses&gt;</description>
        <crank script="counter.py" function="crank">def crank(api): ...</crank>
        <trigger name="Pressed" type="Robot.Button.*.*" after="5"/>
        <trigger name="Ready" type="Psyclone.Ready"/>
        <post name="Count" type="Robot.Count" durable="yes"/>
        <parameter name="limit" type="Integer" value="-10"/>
        <parameter name="rate" type="float" value="1.5e3"/>
        <parameter name="model.chat" type="String" value="/srv/${param:model}"/>
        <parameter name="later" type="Integer" value="${param:n}"/>
        <health command="curl -fs localhost:9" interval-ms="5" timeout-ms="6" misses="7"/>
        <env name="A" value="b"/>
        <psyprobe><anything at="all"/></psyprobe>""",
        'name="counter" wait="no" restart="on-failure" max-restarts="3" restart-window-ms="60000"'
        ' shutdown-ms="5000" ready-ms="0" depends="synapse, lanes" memory-max-bytes="1000000"'
        ' cpu-share="0.5" timeout-ms="9"',
    )
    step = load_recipe(xml).steps[0]
    assert isinstance(step, ModuleStep)
    assert (step.name, step.module, step.wait, step.timeout_ms) == ("counter", "counter", False, 9)
    assert step.xml.startswith("<module name=")
    assert "&lt;presses&gt;" in step.xml


@pytest.mark.parametrize("crank", ['service="synapse"', 'command="/opt/run --port 9"', 'script="/srv/a.py"'])
def test_kinds_of_cranks(crank):
    assert load_recipe(module(f"<crank {crank}/>"))


@pytest.mark.parametrize(
    ("inside", "element", "attribute"),
    [
        ("", "module", None),
        (CRANK + CRANK, "crank", None),
        ("<crank/>", "crank", None),
        ('<crank script="/a.py" command="b"/>', "crank", "command"),
        ('<crank service="lane"/>', "crank", "service"),
        ('<crank service="lanes" function="a"/>', "crank", "function"),
        (CRANK + '<parameter name="a" type="Integer" value="x"/>', "parameter", "value"),
        (CRANK + '<parameter name="a" type="Integer" value="1_0"/>', "parameter", "value"),
        (CRANK + f'<parameter name="a" type="Integer" value="{"1" * 9000}"/>', "parameter", "value"),
        (CRANK + '<parameter name="a" type="Float" value="nan"/>', "parameter", "value"),
        (CRANK + '<parameter name="a" type="Bool" value="x"/>', "parameter", "type"),
        (CRANK + '<parameter name="a" type="String"/>', "parameter", "value"),
        (CRANK + '<parameter name="a" type="String" value="${param}"/>', "parameter", "value"),
        (CRANK + '<trigger name="a" type="A..B"/>', "trigger", "type"),
        (CRANK + '<trigger name="a" type="A.B"/><trigger name="a" type="A.C"/>', "trigger", "name"),
        (CRANK + '<post name="a" type="A.*"/>', "post", "type"),
        (CRANK + "<health/>", "health", None),
        (CRANK + '<health command="a" subject="b"/>', "health", "subject"),
        (CRANK + "<cranq/>", "cranq", None),
        ('<crank script="a.py"/>', "crank", "script"),
        ('<crank script="a.py"> </crank>', "crank", "script"),
        ('<crank script="/a.py" function="a.b"/>', "crank", "function"),
        ('<crank command="a">text</crank>', "crank", None),
        ('<crank command="a \'b"/>', "crank", "command"),
        ('<crank command=" "/>', "crank", "command"),
        ('<crank script="a.py" source-of="b"/>', "crank", "source-of"),
        ('<crank command="a" source-of="b"/>', "crank", "source-of"),
        (CRANK + '<health command="a \'b"/>', "health", "command"),
        (CRANK + f'<parameter name="a" type="Integer" value="{2**63}"/>', "parameter", "value"),
        (CRANK + '<trigger name="a" type="A.*" durable="A.B.C"/>', "trigger", "durable"),
        (CRANK + '<trigger name="a" type="A.*" durable="A.*"/>', "trigger", "durable"),
        (CRANK + '<post name="a" type="Psyclone.Ready"/>', "post", "type"),
        (CRANK + '<post name="a" type="Psyclone.Builder.Bake.Data"/>', "post", "type"),
        (CRANK + "text", "module", None),
    ],
)
def test_wrong_modules(inside, element, attribute):
    problem = only(module(inside))
    assert (problem.element, problem.attribute) == (element, attribute)


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        f'name="{"a" * 33}"',
        'name="a" restart="sometimes"',
        'name="a" depends="a"',
        'name="a" depends="b c/d"',
        'name="a" cpu-share="0"',
        'name="a" retries="1"',
        'name="a" node="b"',
    ],
)
def test_wrong_attributes_of_a_module(attributes):
    assert only(module(CRANK, attributes)).element == "module"
