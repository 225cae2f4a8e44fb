"""Each kind of step, as the recipe's author writes it."""

import pytest

from bakemesh.protocol.builder.spec import load_recipe
from bakemesh.protocol.builder.spec.model import AttachStep, CliStep, CodeStep, RecipeStep, RequestDataStep
from support.specs import cli, only, refused

KEEPS = '<requestdata entry="Words"/>'


def step(xml):
    return load_recipe(f"<recipe>{xml}</recipe>").steps[0]


def test_a_command_is_split_as_a_shell_splits_words():
    found = step("""<cli command="grep -e 'a b' &quot;c d&quot; e\\ f '' $HOME *"/>""")
    assert found.argv == ("grep", "-e", "a b", "c d", "e f", "", "$HOME", "*")
    assert not found.shell


def test_a_reference_stays_in_its_word_whatever_it_will_hold():
    assert step('<cli command="echo a${node}b &quot;${param:k}&quot;"/>').argv == (
        "echo",
        "a${node}b",
        "${param:k}",
    )


def test_arguments_are_taken_as_they_are():
    found = step("<cli><arg>echo</arg><arg> a  b </arg><arg/><arg>'c'</arg></cli>")
    assert found.argv == ("echo", " a  b ", "", "'c'")


def test_a_shell_gets_one_text():
    found = step('<cli shell="yes" command="echo $${HOME} | wc -c"/>')
    assert isinstance(found, CliStep)
    assert found.shell
    assert found.argv == ("echo $${HOME} | wc -c",)


@pytest.mark.parametrize("reference", ["${param:k}", "${entry:Words}"])
def test_a_shell_never_reads_a_value_as_code(reference):
    problem = only(f'<recipe>{KEEPS}<cli shell="yes" command="echo {reference}"/></recipe>')
    assert problem.attribute == "command"
    assert "<env name=" in problem.message
    assert load_recipe(
        f'<recipe>{KEEPS}<cli shell="yes" command="echo &quot;$V&quot; ${{node}}">'
        f'<env name="V" value="{reference}"/></cli></recipe>'
    )


@pytest.mark.parametrize(
    ("xml", "element", "attribute"),
    [
        ("<cli/>", "cli", None),
        ('<cli command=""/>', "cli", "command"),
        ('<cli command="  "/>', "cli", "command"),
        ("""<cli command="'' a"/>""", "cli", "command"),
        ("""<cli command="echo 'a"/>""", "cli", "command"),
        ('<cli command="a"><arg>a</arg></cli>', "cli", "command"),
        ("<cli><arg/></cli>", "arg", None),
        ('<cli shell="yes"><arg>a</arg></cli>', "arg", None),
        ("<cli><arg>a<b/></arg></cli>", "b", None),
        ('<cli command="a">text</cli>', "cli", None),
    ],
)
def test_a_program_is_named_once_and_well(xml, element, attribute):
    problem = only(f"<recipe>{xml}</recipe>")
    assert (problem.element, problem.attribute) == (element, attribute)


def test_the_process_attributes_reach_the_step():
    found = load_recipe(
        f"""<recipe>{KEEPS}<cli command="a" cwd="sub/folder" success-codes="0, 3 255" stderr="merge"
        progress="([0-9]+)%" stdin-entry="Words"><env name="A" value="1"/><env name="B" value=""/>
        </cli></recipe>"""
    ).steps[1]
    assert found.cwd == "sub/folder"
    assert found.env == (("A", "1"), ("B", ""))
    assert found.success_codes == {0, 3, 255}
    assert found.merge_stderr
    assert found.progress == "([0-9]+)%"
    assert found.stdin_entry == "Words"
    assert found.stdin is None


def test_stdin_as_attribute_or_as_element():
    assert step('<cli command="a" stdin="b&#10;c"/>').stdin == "b\nc"
    assert step('<cli command="a" stdin=""/>').stdin == ""
    assert step("<cli command='a'><stdin>b\n c\n</stdin></cli>").stdin == "b\n c\n"
    assert step('<cli command="a"/>').stdin is None


@pytest.mark.parametrize(
    ("attributes", "inside", "where"),
    [
        ('progress="[0-9]+%"', "", "progress"),
        ('progress="(a)(b)"', "", "progress"),
        ('progress="(a"', "", "progress"),
        (f'progress="{"(?:" * 80}(a){")" * 80}{"b" * 400}"', "", "progress"),
        ('progress="(a{99999999999999999999})"', "", "progress"),
        ('progress="([[a])"', "", "progress"),
        ('success-codes=""', "", "success-codes"),
        ('success-codes="256"', "", "success-codes"),
        ('success-codes="-9"', "", "success-codes"),
        ('stderr="split"', "", "stderr"),
        ('cwd=""', "", "cwd"),
        ('cwd="a/../.."', "", "cwd"),
        ('stdin="a" stdin-entry="b"', "", "stdin-entry"),
        ('stdin-entry="Nothing"', "", "stdin-entry"),
        ("", '<env name="1A" value=""/>', "name"),
        ("", '<env name="A=B" value=""/>', "name"),
        ("", '<env name="A"/>', "value"),
        ("", '<env name="A" value="1"/><env name="A" value="2"/>', "name"),
    ],
)
def test_wrong_process_attributes(attributes, inside, where):
    assert where in [problem.attribute for problem in refused(cli(attributes, inside)).problems]


def test_an_entry_for_stdin_must_come_first():
    late = only(f'<recipe><cli command="a" stdin-entry="Words"/>{KEEPS}</recipe>')
    assert "before" in late.message


def test_code_is_taken_as_it_is_and_never_expanded():
    found = step('<code language="sh"><![CDATA[\n  echo "${HOME}" $$ a < b\n]]></code>')
    assert isinstance(found, CodeStep)
    assert found.source == '\n  echo "${HOME}" $$ a < b\n'


def test_code_may_have_variables_before_or_after_it():
    for inside in ('<env name="A" value="b"/>\nprint(1)\n', 'print(1)\n<env name="A" value="b"/>'):
        found = step(f'<code language="python">{inside}</code>')
        assert found.env == (("A", "b"),)
        assert found.source.strip() == "print(1)"
        compile(found.source, "s", "exec")


def test_an_indented_python_source_can_run():
    found = step('<code language="python">\n    if True:\n        print("a")\n</code>')
    compile(found.source, "s", "exec")
    written = 'x = """\n   a\n"""\n'
    assert step(f'<code language="python">\n{written}</code>').source == f"\n{written}"


@pytest.mark.parametrize(
    ("xml", "where"),
    [
        ("<code>print(1)</code>", "language"),
        ('<code language="perl">1</code>', "language"),
        ('<code language="sh"> \n </code>', None),
        ('<code language="sh">a<env name="A" value=""/>b</code>', None),
        ('<code language="sh" command="a">b</code>', "command"),
    ],
)
def test_wrong_code(xml, where):
    assert only(f"<recipe>{xml}</recipe>").attribute == where


def test_requestdata_goes_to_a_file_or_an_entry():
    found = step('<requestdata name="words" entry="Words" into="a/../b/words.txt" timeout-ms="7"/>')
    assert isinstance(found, RequestDataStep)
    assert (found.name, found.entry, found.into, found.timeout_ms) == (
        "words",
        "Words",
        "a/../b/words.txt",
        7,
    )
    assert step('<requestdata into="/srv/words.txt"/>').into == "/srv/words.txt"
    assert load_recipe('<recipe><requestdata name="a" entry="E"/></recipe>').requests == {"a"}


@pytest.mark.parametrize(
    "into", ["", "..", "../a", "a/../../b", "a/", ".", "a/..", "./../a", "${node}x/../../.."]
)
def test_into_that_leaves_the_bakes_folder_needs_an_absolute_path(into):
    if into.startswith("$"):
        assert step(f'<requestdata into="{into}/x"/>')  # it may become absolute: asked again when it starts
    else:
        assert only(f'<recipe><requestdata into="{into}"/></recipe>').attribute == "into"


def test_a_reference_inside_a_path_does_not_hide_where_it_goes():
    assert only('<recipe><requestdata into="a/${node}/../../../b"/></recipe>').attribute == "into"


def test_requestdata_must_say_where_the_data_go():
    assert "entry= " in only("<recipe><requestdata/></recipe>").message


def test_attach():
    found = step('<attach name="wait" module="synapse" follow="yes"/>')
    assert isinstance(found, AttachStep)
    assert (found.module, found.follow) == ("synapse", True)
    assert only("<recipe><attach/></recipe>").attribute == "module"


INNER = """<recipe name="outer" data-interval-ms="7" status-interval-ms="8">
  <requestdata entry="Words"/>
  <recipe name="half" node="beta" retryable="yes" retries="1" weight="5" on-failure="continue" timeout-ms="9"
          expires-ms="11" status-interval-ms="10">
    <cli name="a" command="echo ${param:k}"><env name="A" value="x&#10;y"/></cli>
    <code language="python"><![CDATA[print(1 < 2 & 3 < 4)]]></code>
    <recipe node="gamma"><cli command="b"/></recipe>
  </recipe>
</recipe>"""


def test_an_inner_recipe_is_sent_without_what_is_the_outer_ones_business():
    found = load_recipe(INNER).steps[1]
    assert isinstance(found, RecipeStep)
    assert (found.name, found.node, found.weight, found.retries) == ("half", "beta", 5, 1)
    assert (found.on_failure, found.timeout_ms) == ("continue", 9)
    for attribute in ("retr", "weight", "on-failure", "beta"):
        assert attribute not in found.xml
    sent = load_recipe(found.xml)
    assert (sent.name, sent.expires_ms, sent.timeout_ms, sent.on_failure) == ("half", 11, 9, "fail")
    assert (sent.status_interval_ms, sent.data_interval_ms) == (10, 7)  # its own, and the outer root's


def test_what_the_other_node_reads_is_what_was_checked_here():
    def shape(recipe):
        return [
            (s.KIND, s.name, s.index, getattr(s, "argv", None), getattr(s, "env", None),
             getattr(s, "source", None), s.timeout_ms, s.data_interval_ms,
             shape(s.recipe) if isinstance(s, RecipeStep) else None)
            for s in recipe.steps
        ]  # fmt: skip

    found = load_recipe(INNER).steps[1]
    assert shape(load_recipe(found.xml)) == shape(found.recipe)
    assert found.recipe.steps[0].env == (("A", "x\ny"),)
    assert found.recipe.steps[1].source == "print(1 < 2 & 3 < 4)"


def test_the_names_of_an_inner_recipe_are_its_own():
    assert load_recipe(
        '<recipe><cli name="a" command="b"/><recipe node="n"><cli name="a" command="b"/></recipe></recipe>'
    )
    problem = only(
        '<recipe><cli name="a" command="b"/><recipe node="n">'
        '<cli command="echo ${step:a.exitcode}"/></recipe></recipe>'
    )
    assert "no step" in problem.message


def test_entries_and_requests_stop_at_an_inner_recipe():
    for inside in ('<cli command="echo ${entry:Words}"/>', '<cli command="a" stdin-entry="Words"/>'):
        problem = only(f'<recipe>{KEEPS}<recipe node="n">{inside}</recipe></recipe>')
        assert "inner recipe" in problem.message
    assert "outer" in only('<recipe><recipe node="n"><requestdata entry="a"/></recipe></recipe>').message


def test_an_inner_recipe_names_its_node():
    assert only('<recipe><recipe><cli command="a"/></recipe></recipe>').attribute == "node"
    assert only('<recipe><recipe node="a.b"><cli command="a"/></recipe></recipe>').attribute == "node"
    assert "no step" in only('<recipe><recipe node="a"/></recipe>').message


def test_an_inner_recipe_that_grows_too_large_when_written_is_refused_here():
    returns = "&#13;" * 30_000  # cannot stand in CDATA, so that every '<' has to be escaped
    body = f'<code language="sh">{returns}<![CDATA[{"<" * 250_000}]]></code>'
    assert "alone" in only(f'<recipe><recipe node="n">{body}</recipe></recipe>').message
