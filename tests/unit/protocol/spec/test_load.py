"""A recipe's root, what its steps share, and refusals: everything that is wrong, at once."""

import pytest

from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.spec import load_recipe
from bakemesh.protocol.builder.spec.grammar import STEPS
from bakemesh.protocol.builder.spec.model import OnFailure
from support.specs import cli, only, refused


def test_defaults_are_those_of_the_seed():
    recipe = load_recipe('<recipe><cli command="true"/></recipe>')
    assert recipe.name is None
    assert (recipe.status_interval_ms, recipe.data_interval_ms, recipe.max_data_bytes) == (5000, 1000, 262144)
    assert (recipe.timeout_ms, recipe.expires_ms, recipe.on_failure) == (0, 0, OnFailure.FAIL)
    step = recipe.steps[0]
    assert (step.name, step.index, step.weight, step.retryable, step.retries) == ("cli-0", 0, 1, False, 0)


def test_the_roots_attributes_hold_for_a_step_until_it_says_otherwise():
    xml = """<recipe status-interval-ms="0" data-interval-ms="20" max-data-bytes="30" timeout-ms="40"
                     on-failure="hold" expires-ms="9">
      <cli command="a"/>
      <cli command="a" status-interval-ms="1" data-interval-ms="0" max-data-bytes="3" timeout-ms="0"
           on-failure="continue"/>
    </recipe>"""
    recipe = load_recipe(xml)
    root, own = recipe.steps
    assert recipe.expires_ms == 9
    assert (root.status_interval_ms, root.data_interval_ms, root.max_data_bytes, root.timeout_ms) == (
        0,
        20,
        30,
        40,
    )
    assert root.on_failure is OnFailure.HOLD
    assert (own.status_interval_ms, own.data_interval_ms, own.max_data_bytes, own.timeout_ms) == (1, 0, 3, 0)
    assert own.on_failure is OnFailure.CONTINUE


def test_all_problems_are_said_at_once_in_the_order_of_lines():
    error = refused(
        """<recipe nam="x" timeout-ms="5s">
  <cli name="a" comand="ls" retyable="yes"/>
  <clli/>
  <cli name="a" command="ls ${entry:Nothing}"/>
  <code language="ruby">x</code>
</recipe>"""
    )
    assert error.code is Code.INVALID_RECIPE
    said = [(problem.line, problem.element, problem.attribute) for problem in error.problems]
    assert said == [
        (1, "recipe", "nam"),
        (1, "recipe", "timeout-ms"),
        (2, "cli", "comand"),
        (2, "cli", "retyable"),
        (2, "cli", None),
        (3, "clli", None),
        (4, "cli", "name"),
        (4, "cli", "command"),
        (5, "code", "language"),
    ]
    assert str(error).count("\n") == 8


def test_a_typo_is_answered_with_the_nearest_known_name():
    assert "did you mean 'retryable'?" in only(cli('retyable="yes"')).message
    assert "did you mean 'timeout-ms'?" in only(cli('timeout_ms="1"')).message
    assert "did you mean 'requestdata'?" in only('<recipe><request-data entry="a"/></recipe>').message
    assert "did you mean 'env'?" in only(cli(inside='<enf name="A" value="b"/>')).message


def test_what_belongs_elsewhere_is_told_where():
    assert "<requestdata>" in only(cli('into="a"')).message
    assert "<cli>" in only("<recipe><arg>a</arg></recipe>").message
    assert "step" in only('<recipe retries="1"><cli command="a"/></recipe>').message
    assert "step" in only('<recipe node="b"><cli command="a"/></recipe>').message


def test_a_hundred_problems_are_the_most_and_fit_into_a_result():
    error = refused("<recipe>" + f'<cli command="true" {"ä" * 300}="{"ö" * 500}"/>' * 500 + "</recipe>")
    assert len(error.problems) == 100
    assert sum(len(repr(problem.entry()).encode()) for problem in error.problems) < 65536


def test_a_problem_prints_as_file_line_element_attribute_message():
    problem = only("\n" + cli('weight="x"'), file="hello.xml")
    assert str(problem) == "hello.xml:2: <cli> weight=: must be a whole number, not 'x'"
    assert problem.entry() == {
        "line": 2,
        "element": "cli",
        "attribute": "weight",
        "message": "must be a whole number, not 'x'",
    }


@pytest.mark.parametrize(
    ("attributes", "attribute"),
    [
        ('name="a b"', "name"),
        ('name=""', "name"),
        (f'name="{"a" * 65}"', "name"),
        ('timeout-ms="-1"', "timeout-ms"),
        ('timeout-ms="1.5"', "timeout-ms"),
        ('timeout-ms="٣"', "timeout-ms"),
        ('timeout-ms="99999999999999"', "timeout-ms"),
        ('timeout-ms="${param:t}"', "timeout-ms"),
        ('weight="0"', "weight"),
        ('retryable="true"', "retryable"),
        ('retryable="Yes"', "retryable"),
        ('on-failure="stop"', "on-failure"),
        ('max-data-bytes="0"', "max-data-bytes"),
        ('max-data-bytes="4194305"', "max-data-bytes"),
        ('retries="1"', "retries"),
        ('retries="1" retryable="no"', "retries"),
        ('retry-delay-ms="1"', "retry-delay-ms"),
    ],
)
def test_a_wrong_value_on_a_step(attributes, attribute):
    problem = only(cli(attributes))
    assert (problem.element, problem.attribute) == ("cli", attribute)


def test_retries_go_with_retryable():
    step = load_recipe(cli('retryable="yes" retries="2" retry-delay-ms="30"')).steps[0]
    assert (step.retryable, step.retries, step.retry_delay_ms) == (True, 2, 30)


def test_continue_is_for_steps_alone():
    problem = only('<recipe on-failure="continue"><cli command="a"/></recipe>')
    assert problem.attribute == "on-failure"


def test_a_step_name_is_taken_once_be_it_given_or_by_default():
    problem = only('<recipe>\n<cli name="a" command="a"/>\n<cli name="a" command="a"/></recipe>')
    assert (problem.line, problem.attribute) == (3, "name")
    assert "line 2" in problem.message
    assert "cli-1" in only('<recipe><cli name="cli-1" command="a"/><cli command="a"/></recipe>').message


def test_max_data_bytes_is_bound_by_the_servers_max_payload():
    half = 524288
    assert load_recipe(cli(f'max-data-bytes="{half - 65536}"'), max_payload=half)
    problem = only(cli(f'max-data-bytes="{half - 65535}"'), max_payload=half)
    assert problem.attribute == "max-data-bytes"
    assert "458,752" in problem.message
    inner = f'<recipe><recipe node="b" max-data-bytes="{half}"><cli command="a"/></recipe></recipe>'
    assert only(inner, max_payload=half).attribute == "max-data-bytes"


def test_the_default_of_max_data_bytes_bows_to_a_small_server():
    recipe = load_recipe(cli(), max_payload=131072)
    assert recipe.max_data_bytes == recipe.steps[0].max_data_bytes == 65536


def test_another_root_and_an_empty_recipe_are_refused():
    assert "PsySpec" in only("<psySpec/>").message
    assert "<recipe>" in only("<html/>").message
    assert "no step" in only("<recipe/>").message
    assert "no meaning" in only('<recipe>hello<cli command="a"/></recipe>').message


ALL = """<recipe>
  <module name="synapse"><crank service="synapse"/></module>
  <attach module="synapse"/>
  <cli command="true"/>
</recipe>"""


def test_steps_that_are_not_supported_are_refused_by_their_own_code():
    assert len(load_recipe(ALL).steps) == 3
    error = refused(ALL, supported=frozenset({"cli", "code"}))
    assert error.code is Code.UNSUPPORTED_STEP
    assert [problem.element for problem in error.problems] == ["module", "attach"]
    assert "cli, code" in error.problems[0].message


def test_an_invalid_recipe_is_invalid_first_and_unsupported_second():
    error = refused(ALL.replace("true", ""), supported=frozenset({"cli"}))
    assert error.code is Code.INVALID_RECIPE
    assert len(error.problems) == 3


def test_steps_of_an_inner_recipe_are_its_own_nodes_business():
    xml = f'<recipe><recipe node="b">{ALL[8:-9]}</recipe></recipe>'
    assert load_recipe(xml, supported=frozenset({"recipe"}))


def test_every_kind_of_step_has_a_table():
    assert set(STEPS) == {"cli", "code", "requestdata", "module", "attach", "recipe"}
