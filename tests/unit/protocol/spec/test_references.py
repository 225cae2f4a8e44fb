"""`${…}`: what is one, what it may refer to, and that a value is put in as it is."""

import pytest

from bakemesh.protocol.builder.spec import ReferenceFailed, Values, expand, load_recipe
from bakemesh.protocol.builder.spec.references import Kind, Reference, ReferenceMalformed, parse
from support.specs import only

VALUES = Values(
    node="alpha",
    node_id="a1",
    recipe_id="me-hello-1",
    entries={
        "Words": "ä b".encode(),
        "Raw": b"\xff\xfe",
        "Nul": b"a\0b",
        "Full": b"x" * 65536,
        "Over": b"x" * 65537,
    },
    exitcodes={"fetch": -9},
    params={"k": "v", "n": 3, "f": 1.5, "yes": True, "bytes": b"q", "map": {}, "none": None},
)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain", "plain"),
        ("", ""),
        ("${node}/${nodeid}/${recipeid}", "alpha/a1/me-hello-1"),
        ("<${entry:Words}>", "<ä b>"),
        ("${step:fetch.exitcode}", "-9"),
        ("${param:k}${param:n}${param:f}${param:yes}${param:bytes}", "v31.5yesq"),
        ("$$", "$"),
        ("$${HOME}", "${HOME}"),
        ("$$$${node}", "$${node}"),
        ("$$${node}", "$alpha"),
        ("$HOME $1 a$ $", "$HOME $1 a$ $"),
        ("${entry:Skipped}", ""),
    ],
)
def test_expansion(text, expanded):
    assert expand(text, VALUES) == expanded


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${entry:Raw}", "not UTF-8 at byte 0"),
        ("${entry:Nul}", "NUL at byte 1"),
        ("${entry:Over}", "65,537 bytes"),
        ("${param:absent}", "without this parameter"),
        ("${param:map}", "dict"),
        ("${param:none}", "NoneType"),
        ("${step:other.exitcode}", "without an exit code"),
        ("${entry:Full}" * 17, "grows over"),
        ("${no}", "no reference"),
    ],
)
def test_what_cannot_be_put_in_fails_the_step_and_says_so(text, words):
    with pytest.raises(ReferenceFailed, match=words):
        expand(text, VALUES)


def test_the_largest_value_and_the_largest_text_fit():
    assert len(expand("${entry:Full}" * 16, VALUES)) == 1 << 20


def test_a_failure_never_shows_the_value():
    secret = b"canary\xff"
    with pytest.raises(ReferenceFailed) as caught:
        expand("${entry:A}", Values("n", "i", "r", entries={"A": secret}))
    assert "canary" not in str(caught.value)


def test_pieces():
    assert parse("a${step:b-c_1.exitcode}d$$") == ("a", Reference(Kind.STEP, "b-c_1"), "d$")
    assert str(parse("${step:b.exitcode}")[0]) == "${step:b.exitcode}"


@pytest.mark.parametrize(
    "text",
    ["${", "${node", "${}", "${HOME}", "${Node}", "${node:a}", "${entry}", "${entry:}", "${entry:a b}",
     "${param:a.b}", "${step:a}", "${step:a.pid}", "${step:.exitcode}", "${entry:${node}}", "a ${ b"],
)  # fmt: skip
def test_what_is_no_reference_is_refused_at_load(text):
    with pytest.raises(ReferenceMalformed):
        parse(text)
    assert only(f"<recipe><cli><arg>a</arg><arg>{text}</arg></cli></recipe>").element == "arg"


def test_the_shells_own_variables_are_explained():
    assert "'$${" in only('<recipe><cli shell="yes" command="echo ${HOME}"/></recipe>').message
    assert "did you mean 'param'" in only('<recipe><cli command="echo ${parm:a}"/></recipe>').message


WHERE = [
    '<cli command="a {}"/>',
    "<cli><arg>a</arg><arg>{}</arg></cli>",
    '<cli command="a" cwd="x{}"/>',
    '<cli command="a" stdin="{}"/>',
    '<cli command="a"><stdin>{}</stdin></cli>',
    '<cli command="a"><env name="A" value="{}"/></cli>',
    '<code language="sh" cwd="x{}">a</code>',
    '<code language="sh">a<env name="A" value="{}"/></code>',
    '<requestdata entry="E" into="x{}"/>',
]


@pytest.mark.parametrize("where", WHERE)
def test_every_text_that_takes_references_checks_them(where):
    before = '<requestdata name="ask" entry="Words"/><cli name="one" command="a"/>'
    for good in ("${entry:Words}", "${step:one.exitcode}", "${param:k}", "${node}", "$${x}"):
        assert load_recipe(f"<recipe>{before}{where.format(good)}</recipe>")
    for bad in ("${entry:Wrods}", "${step:two.exitcode}", "${step:ask.exitcode}", "${x}"):
        only(f"<recipe>{before}{where.format(bad)}</recipe>")


def test_only_what_came_before_can_be_referred_to():
    own = only('<recipe><cli name="a" command="echo ${step:a.exitcode}"/></recipe>')
    assert "does not come before" in own.message
    late = only('<recipe><cli command="echo ${step:b.exitcode}"/><cli name="b" command="c"/></recipe>')
    assert "does not come before" in late.message
    late = only('<recipe><cli command="echo ${entry:E}"/><requestdata entry="E"/></recipe>')
    assert "does not come before" in late.message
    assert load_recipe('<recipe><cli command="b"/><cli command="echo ${step:cli-0.exitcode}"/></recipe>')


def test_a_near_name_is_suggested():
    xml = '<recipe><cli name="fetch" command="b"/><cli command="echo ${step:fecth.exitcode}"/></recipe>'
    assert "did you mean 'fetch'?" in only(xml).message
    xml = '<recipe><requestdata entry="Words"/><cli command="echo ${entry:words}"/></recipe>'
    assert "did you mean 'Words'?" in only(xml).message


def test_parameters_are_checked_where_they_are_known():
    xml = '<recipe><cli command="echo ${param:exampels}"/></recipe>'
    assert load_recipe(xml)
    assert "did you mean 'examples'?" in only(xml, params={"examples"}).message
    assert "came with none" in only(xml, params=()).message
    inner = '<recipe><recipe node="n"><cli command="echo ${param:a}"/></recipe></recipe>'
    assert load_recipe(inner, params={"a"})
    assert only(inner, params={"b"}).attribute == "command"


def test_a_reference_that_stands_ten_times_is_one_problem():
    assert only('<recipe><cli command="echo ' + "${step:x.exitcode} " * 10 + '"/></recipe>')
