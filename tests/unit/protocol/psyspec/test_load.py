"""What a PsySpec says, and what is said of one that is wrong: where, and what would be right."""

from __future__ import annotations

import pytest

from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.spec.component import (
    CommandCrank,
    Health,
    Parameter,
    Post,
    ScriptCrank,
    Trigger,
)
from bakemesh.protocol.psyspec import Cohort, NodeEntry, PsySpecRefused, load_psyspec
from support.psyspecs import CRANK, SCRIPT, loaded, module, only, psyspec, refused

WHOLE = f"""<psySpec name="demo">
  <variable name="Models" value="/srv/models"/>
  <node name="alpha" id="a1"/> <NODE Name="beta"/>
  <module name="synapse" node="alpha" restart="always">
    <description>
      Inference for everyone
    </description>
    <crank service="synapse"/>
    <parameter name="model.chat" type="String" value="%Models%/100%%.gguf"/>
  </module>
  <Module name="counter" node="beta" restart="on-failure" max-restarts="7" restart-window-ms="8"
      shutdown-ms="9" ready-ms="10" memory-max-bytes="11" cpu-share="0.5">
    <crank script="counter.py" function="run">{SCRIPT}</crank>
    <trigger name="Pressed" type="Robot.Button.*.*" after="5"/>
    <post name="Count" type="Robot.Count"/>
    <parameter name="limit" type="Integer" value="10"/>
    <parameter name="rate" type="Float" value="10"/>
    <env name="A" value="$B"/>
    <health command="curl -fs 'a b'" interval-ms="1" timeout-ms="2" misses="3"/>
  </Module>
  <module name="button" depends="light"><crank command="/opt/run --port 9"/>
    <post name="Left" type="Robot.Button.Left.Down" durable="yes"/>
    <health subject="Health.Ask"/>
  </module>
  <module name="light"><crank command="light"/></module>
  <supervisor name="nightly" node="alpha"><crank script="/srv/nightly.py"/></supervisor>
  <cohort name="web" nodes="alpha, beta"/>
  <psyprobe location="x"><anything/></psyprobe>
</psySpec>"""


def test_a_whole_psyspec() -> None:
    found = load_psyspec(WHOLE)
    assert found.name == "demo"
    assert found.nodes == (NodeEntry("alpha", "a1"), NodeEntry("beta", None))
    assert found.cohorts == (Cohort("web", ("alpha", "beta")),)
    assert [(entry.spec.name, entry.node, entry.line) for entry in found.modules] == [
        ("synapse", "alpha", 4),
        ("counter", "beta", 11),
        ("button", None, 23),
        ("light", None, 27),
        ("nightly", "alpha", 28),
    ]
    synapse, counter, button, light, nightly = (entry.spec for entry in found.modules)
    assert synapse.description == "Inference for everyone"
    assert synapse.parameters == (Parameter(name="model.chat", value="/srv/models/100%.gguf"),)
    assert counter.crank == ScriptCrank(script="counter.py", function="run", source=SCRIPT)
    assert counter.triggers == (
        Trigger(name="Pressed", type="Robot.Button.*.*", after_ms=5, durable=("Robot.Button.Left.Down",)),
    )
    assert counter.parameters == (Parameter(name="limit", value=10), Parameter(name="rate", value=10.0))
    assert [type(each.value) for each in counter.parameters] == [int, float]
    assert counter.env == (("A", "$B"),)
    assert counter.health == Health(argv=("curl", "-fs", "a b"), interval_ms=1, timeout_ms=2, misses=3)
    assert (counter.restart, counter.max_restarts, counter.restart_window_ms) == ("on-failure", 7, 8)
    assert (counter.shutdown_ms, counter.ready_ms) == (9, 10)
    assert (counter.memory_max_bytes, counter.cpu_share) == (11, 0.5)
    assert button.crank == CommandCrank(argv=("/opt/run", "--port", "9"))
    assert button.posts == (Post(name="Left", type="Robot.Button.Left.Down", durable=True),)
    assert button.health == Health(subject="Health.Ask")
    assert (button.depends, light.restart) == (("light",), "always")
    assert nightly.supervisor
    assert [str(warning) for warning in found.warnings] == [
        "psyspec:30: <psyprobe>: means nothing here and is passed over"
    ]


WRONG = [
    # root
    ("<psySpec nam='a'/>", "psyspec", "nam", "did you mean 'name'?"),
    ("<psySpec name='a b'/>", "psyspec", "name", "holds ' '"),
    ("<recipe/>", "recipe", None, "this is a recipe; a PsySpec's root is <psySpec>"),
    ("<config/>", "config", None, "this is no PsySpec"),
    ("<psySpec>text</psySpec>", "psyspec", None, "'text' has no meaning here"),
    ("<psySpec><modul name='a'/></psySpec>", "modul", None, "did you mean 'module'?"),
    ("<psySpec><psyprob/></psySpec>", "psyprob", None, "did you mean 'psyprobe'?"),
    ("<psySpec><xyzzy/></psySpec>", "xyzzy", None, "takes variable, include, node, module"),
    ("<psySpec><cli command='a'/></psySpec>", "cli", None, "unknown element"),
    ("<psySpec xmlns='u'/>", "{u}psyspec", None, "no PsySpec"),
    ("<psySpec><m xmlns='u'/></psySpec>", "{u}m", None, "remove xmlns"),
    ("<!DOCTYPE a><psySpec/>", None, None, "a document type (<!DOCTYPE …>, entities) is not allowed"),
    ("<psySpec>", None, None, "ends before its elements are closed"),
    ("<psySpec>&a;</psySpec>", None, None, "undefined entity"),
    # variables
    (psyspec("<variable name='A'/>"), "variable", "value", "is missing"),
    (psyspec("<variable name='1' value=''/>"), "variable", "name", "is no variable's name"),
    (
        psyspec("<variable name='A' value=''/>\n<variable name='A' value=''/>"),
        "variable", "name", "'A' is defined in line 1 already",
    ),
    (psyspec("<variable name='A' value='%A%'/>"), "variable", "value", "no variable is named 'A'"),
    (
        psyspec("<variable name='Models' value=''/>" + module("m", 'depends="%Modles%"')),
        "module", "depends", "no variable is named 'Modles'; did you mean 'Models'?",
    ),
    (psyspec(module("m", inside="<crank command='date +%H%M'/>")), "crank", "command", "write %% for"),
    # files that are not put in
    (psyspec("<include file='a.inc'/>"), "include", None, "put together before"),
    (psyspec(module("m", inside="<crank script='a.py'/>")), "crank", "script", "is no absolute path"),
    # nodes, cohorts
    (psyspec("<node/>"), "node", "name", "is missing"),
    (psyspec("<node name='a' id='any'/>"), "node", "id", "is reserved"),
    (psyspec("<node name='a' id='1'/>\n<node name='b' id='1'/>"), "node", "id", "by the <node> in line 1"),
    (psyspec("<node name='a'/><node name='a'/>"), "node", "name", "'a' is taken"),
    (psyspec("<cohort name='c' nodes=''/>"), "cohort", "nodes", "names no node"),
    (psyspec("<node name='alpha'/><cohort name='c' nodes='alpah'/>"), "cohort", "nodes", "mean 'alpha'?"),
    (psyspec("<node name='a'/><cohort name='c' nodes='a'/><cohort name='c' nodes='a'/>"),
     "cohort", "name", "'c' is taken"),
    # modules
    (psyspec(module("m", inside="")), "module", None, "needs a <crank> inside"),
    (psyspec(module("m", "rstart='always'")), "module", "rstart", "did you mean 'restart'?"),
    (psyspec(module("m", "wait='no'")), "module", "wait", "belongs to a <module> step of a recipe"),
    (psyspec(module("m", "timeout-ms='5'")), "module", "timeout-ms", "belongs to a <module> step"),
    (psyspec(module("m", "restart='sometimes'")), "module", "restart", "must be one of always"),
    (psyspec(module("builder-m")), "module", "name", "are those of a node's services"),
    (psyspec(module("m") + "\n" + module("m")), "module", "name", "'m' is taken by the <module> in line 1"),
    (
        psyspec("<node name='a'/><node name='b'/>" + module("m", "node='a'") + module("m", "node='b'")),
        "module", "name", "'m' is taken",
    ),
    (psyspec(module("m", "node='beta'")), "module", "node", "named 'beta'; add <node name='beta'/>"),
    (psyspec("<node name='beta'/>" + module("m", "node='bta'")), "module", "node", "did you mean 'beta'?"),
    (psyspec(module("m", "supervisor='maybe'")), "module", "supervisor", "must be 'yes' or 'no'"),
    (psyspec("<supervisor name='s' supervisor='no'>" + CRANK + "</supervisor>"), "supervisor", "supervisor",
     "belongs to <module>"),
    (psyspec(module("m", inside=CRANK + "<triger name='a' type='b'/>")), "triger", None, "mean 'trigger'?"),
    (
        psyspec(module("m", inside=CRANK + "<parameter name='a' type='Integer' value='${node}'/>")),
        "parameter", "value", "must be a whole number",
    ),
    (psyspec(module("m", inside="<crank script='a.py' source-of='n'/>")), "crank", "source-of", "'n' before"),
    # depends
    (psyspec(module("m", "depends='m'")), "module", "depends", "depends on itself"),
    (psyspec(module("one") + module("two", "depends='oen'")), "module", "depends", "did you mean 'one'?"),
    (psyspec(module("a", "depends='b'") + module("b", "depends='c'") + module("c", "depends='a'")),
     "module", "depends", "a → b → c → a: a cycle"),
    (
        psyspec(
            "<node name='x'/><node name='y'/>" + module("a", "node='x'") + module("b", "node='y' depends='a'")
        ),
        "module", "depends", "'a' is on node x, this one on node y; order is kept within a node alone",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "element", "attribute", "said"), WRONG)
def test_what_is_wrong_is_said(text: str, element: str | None, attribute: str | None, said: str) -> None:
    problem = only(text)
    assert (problem.element, problem.attribute) == (element, attribute), problem
    assert said in problem.message


def test_all_problems_are_said_at_once_with_their_lines() -> None:
    text = """<psySpec>
    <node name="a" id="1"/>
    <module name="m" node="b" depends="nothing">
      <crank/>
      <trigger name="t" type="A..B"/>
    </module>
    <module name="n" restart="x"><crank command="a"/></module>
    <oops/>
    </psySpec>"""
    said = refused(text, file="site.xml")
    assert [(problem.line, problem.element, problem.attribute) for problem in said] == [
        (3, "module", "node"),
        (3, "module", "depends"),
        (4, "crank", None),
        (5, "trigger", "type"),
        (7, "module", "restart"),
        (8, "oops", None),
    ]
    assert {problem.file for problem in said} == {"site.xml"}


def test_two_cycles_are_both_said() -> None:
    text = psyspec(
        module("a", "depends='b'") + module("b", "depends='a'") + module("c", "depends='d'")
        + module("d", "depends='c,e'") + module("e")
    )  # fmt: skip
    assert [problem.message.partition(":")[0] for problem in refused(text)] == ["a → b → a", "c → d → c"]


def test_warnings_name_what_is_passed_over_and_refuse_nothing() -> None:
    found = loaded("<catalog/><space><x/></space>" + module("m", inside=CRANK + "<psyprobe/>"))
    assert [warning.element for warning in found.warnings] == ["catalog", "space", "psyprobe"]
    (empty,) = loaded("").warnings
    assert "nothing to bring up" in empty.message
    (literal,) = loaded(module("m", inside="<crank command='run ${node} ${HOME}'/>")).warnings
    assert "'${node}' stands for itself in a PsySpec" in literal.message
    (entry,) = loaded(module("m", inside="<crank command='run ${node} $$ ${HOME}'/>")).modules
    assert entry.spec.crank == CommandCrank(argv=("run", "${node}", "$$", "${HOME}"))


def test_a_script_that_modules_share_is_theirs() -> None:
    shared = "<crank script='a.py' function='other' source-of='m'/>"
    one, two = loaded(
        module("m", inside=f"<crank script='a.py'>{SCRIPT}</crank>") + module("n", inside=shared)
    ).modules
    assert isinstance(one.spec.crank, ScriptCrank)
    assert two.spec.crank == ScriptCrank(script="a.py", function="other", source=one.spec.crank.source)


def test_a_script_that_is_indented_with_the_xml_can_run_and_others_stay_as_they_are() -> None:
    def source(text: str) -> str | None:
        crank = loaded(module("m", inside=f"<crank script='a.py'>{text}</crank>")).modules[0].spec.crank
        assert isinstance(crank, ScriptCrank)
        return crank.source

    assert source("\n    def crank(api):\n        pass\n    ") == "\ndef crank(api):\n    pass\n"
    kept = "   # a comment\nTEXT = '''\n   \n'''\n"
    assert source(kept) == kept


def test_durable_types_reach_the_triggers_that_take_them() -> None:
    stored = '<post name="P" type="{}" durable="yes"/>'
    trigger = '<trigger name="T" type="A.*"/><trigger name="U" type="*"/>'
    trigger += '<trigger name="V" type="A.*" durable="A.Z"/>'
    found = loaded(
        module("m", inside=CRANK + stored.format("A.B"))
        + module("n", inside=CRANK + stored.format("A.C") + '<post name="Q" type="A.D"/>')
        + module("o", inside=CRANK + stored.format("A.B.C"))
        + module("t", inside=CRANK + trigger)
    )
    (entry,) = (entry for entry in found.modules if entry.spec.name == "t")
    assert [trigger.durable for trigger in entry.spec.triggers] == [("A.B", "A.C"), (), ("A.B", "A.C", "A.Z")]


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (WHOLE.replace("\n  <", "\n\n <!-- x --> <"), True),
        (WHOLE.replace('id="a1"', "id='&#97;1'"), True),
        (WHOLE.replace("pass", "return"), False),
        (WHOLE.replace('name="demo"', 'name="other"'), False),
        (WHOLE.replace('id="a1"', 'id="a2"'), False),
        (WHOLE.replace('"alpha, beta"', '"alpha"'), False),
        (WHOLE.replace('node="alpha" restart', "restart"), False),
        (WHOLE.replace('value="10"', 'value="11"', 1), False),
        (WHOLE.replace("/srv/models", "/srv/model"), False),
    ],
)
def test_the_digest_is_of_the_meaning(other: str, same: bool) -> None:
    assert (load_psyspec(other).digest == load_psyspec(WHOLE).digest) is same
    assert other != WHOLE


def sized(count: int, inside: str = CRANK) -> str:
    return "".join(module(f"m{n}", inside=inside) for n in range(count))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (sized(501), "gets 501 modules; at most 500"),
        (sized(400, CRANK + "".join(f"<env name='A{n}' value=''/>" for n in range(60))),
         "elements; its bring-up takes 20,000"),
        (sized(12, CRANK + f"<env name='A' value='{'$' * 32000}'/><env name='B' value='{'$' * 32000}'/>"),
         "at most 1,048,576 are allowed"),
        (module("m", inside=f"<crank script='a.py'>{SCRIPT}{'#' * (1 << 20)}</crank>"), "bytes, 1,048,"),
        (
            module("m", inside=f"<crank script='a.py'>{SCRIPT}{'#' * 500_000}</crank>")
            + "".join(module(f"n{n}", inside="<crank script='a.py' source-of='m'/>") for n in range(40)),
            "over 16,777,216",
        ),
        (module("m", inside=CRANK + f"<env name='A' value='{'$' * 40000}'/>"), "is 80,000 bytes long"),
    ],
)  # fmt: skip
def test_what_no_bring_up_can_hold_is_said_with_its_sizes(text: str, said: str) -> None:
    assert said in only(psyspec(text)).message


def test_a_large_script_that_many_share_fits() -> None:
    script = f"<crank script='a.py'>{SCRIPT}{'#' * 30_000}</crank>"
    assert len(loaded(sized(100, script)).modules) == 100


def test_modules_without_a_node_count_for_every_node() -> None:
    some = "".join(module(f"n{n}", "node='x'") for n in range(300))
    text = psyspec("<node name='x'/>" + sized(300) + some)
    assert "node x gets 600 modules" in only(text).message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (sized(10_001), "more than 10,000 modules"),
        ("".join(f"<node name='n{n}'/>" for n in range(1001)), "more than 1,000 nodes"),
        (
            module("m", inside=CRANK + "".join(
                f"<post name='p{n}' type='T{n}' durable='yes'/>" for n in range(1001)
            )),
            "1,001 types of durable posts",
        ),
        (
            module("m", inside=CRANK + "".join(
                f"<post name='p{n}' type='T.A{n}' durable='yes'/><trigger name='t{n}' type='*.A{n}'/>"
                for n in range(500)
            )),
            "500 types of durable posts and 500 trigger types with '*'",
        ),
        (
            module("m", inside=CRANK + "".join(
                f"<post name='p{n}' type='T.A{n}' durable='yes'/><trigger name='t{n}' type='T.*'/>"
                for n in range(500)
            )),
            "triggers that take 250,000 durable types",
        ),
    ],
)  # fmt: skip
def test_what_would_cost_too_much_is_refused(text: str, said: str) -> None:
    assert said in only(psyspec(text)).message


def test_bounds_are_kept_before_they_cost() -> None:
    bomb = "<variable name='A0' value='aaaaaaaaaa'/>" + "".join(
        f"<variable name='A{n}' value='{f'%A{n - 1}%' * 10}'/>" for n in range(1, 40)
    )
    assert "bytes long with its variables" in only(psyspec(bomb)).message
    wide = f"<variable name='A' value='{'a' * 60_000}'/>" + "".join(
        module(f"m{n}", inside="<crank command='a'/><env name='A' value='%A%'/>") for n in range(200)
    )
    assert "over 8,388,608 bytes in all" in only(psyspec(wide)).message
    with pytest.raises(PsySpecRefused) as caught:
        load_psyspec("<psySpec>" + " " * (4 << 20) + "</psySpec>")
    assert caught.value.code is Code.TOO_LARGE
    assert "split the PsySpec" in str(caught.value)
    assert len(refused(psyspec("<oops/>" * 500))) == 100
    assert "deeper than 16" in only(psyspec("<space>" * 20 + "</space>" * 20)).message
