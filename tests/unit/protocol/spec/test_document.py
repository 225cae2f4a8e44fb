"""Hostile and broken XML: a typed problem with its line, whatever comes, and the bounds hold."""

import pytest

from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.spec import Limits, load_recipe
from bakemesh.protocol.builder.spec.document import read, write
from bakemesh.protocol.builder.spec.problems import Collector
from support.specs import cli, only, refused

BOMB = """<!DOCTYPE recipe [
 <!ENTITY a "aaaaaaaaaa">
 <!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">
]>
<recipe>&b;</recipe>"""


def test_an_entity_bomb_is_refused_at_its_doctype():
    problem = only(BOMB)
    assert problem.line == 1
    assert "document type" in problem.message


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE recipe SYSTEM "file:///etc/passwd">',
        '<!DOCTYPE recipe PUBLIC "x" "http://localhost/x.dtd">',
        '<!DOCTYPE recipe [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE recipe [<!ENTITY % x "y">]>',
    ],
)
def test_nothing_external_is_ever_asked_for(doctype):
    assert "remove it" in only(f'\n{doctype}<recipe><cli command="true"/></recipe>').message


@pytest.mark.parametrize(
    ("xml", "line", "words"),
    [
        ("", 1, "no element found"),
        ("no xml at all", 1, "column 1"),
        ('<recipe>\n<cli command="a & b"/></recipe>', 2, "&amp;"),
        ('<recipe>\n\n<cli command="a"></recipe>', 3, "mismatched tag"),
        ('<recipe>\n<cli command="a" command="b"/></recipe>', 2, "duplicate attribute"),
        ("<recipe>\n<cli>\n&nbsp;</cli></recipe>", 3, "only &lt;"),
        ('<recipe>\n<cli command="\0"/></recipe>', 2, "invalid token"),
        ('<recipe>\n<cli command="&#0;"/></recipe>', 2, "character number"),
        ('<recipe>\n<cli command="\ud800"/></recipe>', 2, "U+D800"),
        ("<recipe>\n<!-- a --param -->\n</recipe>", 2, "inside a comment"),
        ("<recipe/><recipe/>", 1, "one root"),
    ],
)
def test_broken_xml_is_one_problem_with_its_line(xml, line, words):
    error = refused(xml)
    assert error.code is Code.INVALID_RECIPE
    assert [problem.line for problem in error.problems] == [line]
    assert words in error.problems[0].message


def test_too_large_counts_bytes_and_names_both_sizes():
    small = Limits(xml_bytes=200)
    ends = '<recipe><cli command="', '"/></recipe>'
    room = 200 - sum(map(len, ends))
    assert load_recipe((ends[0] + "x" * room + ends[1]), small)
    error = refused(ends[0] + "ü" * (room // 2 + 1) + ends[1], limits=small)
    assert error.code is Code.TOO_LARGE
    assert "200" in error.problems[0].message


def test_ten_mebibytes_are_too_large():
    assert refused("<recipe>" + "<cli command='a'/>" * 600_000 + "</recipe>").code is Code.TOO_LARGE


def test_the_depth_is_bounded_and_sixteen_is_allowed():
    deep = "<recipe>" + '<recipe node="b">' * 14 + '<cli command="a"/>' + "</recipe>" * 15
    assert load_recipe(deep)
    deeper = "<recipe>\n" + '<recipe node="b">' * 15 + '<cli command="a"/>' + "</recipe>" * 16
    problem = only(deeper)
    assert (problem.line, problem.element) == (2, "cli")
    assert "16" in problem.message


def test_reading_stops_at_the_bound_and_not_at_the_end():
    # never closed: were it read to its end, the answer would be "no element found"
    assert "nested deeper" in only("<recipe>" + '<recipe node="b">' * 50_000).message
    assert "elements" in only("<recipe>" + "<x/>" * 250_000).message


def test_an_attribute_is_bounded_in_bytes():
    limits = Limits(attribute_bytes=100)
    assert load_recipe('<recipe><cli command="' + "a" * 100 + '"/></recipe>', limits)
    problem = only('<recipe><cli command="' + "ü" * 51 + '"/></recipe>', limits=limits)
    assert problem.attribute == "command"
    assert "102" in problem.message
    problem = only("<recipe><cli><arg>" + "a" * 101 + "</arg></cli></recipe>", limits=limits)
    assert problem.element == "arg"


def test_steps_are_counted_with_those_of_inner_recipes():
    limits = Limits(steps=4)
    one = '<cli command="a"/>'
    assert load_recipe(f'<recipe><recipe node="b">{one * 3}</recipe></recipe>', limits)
    assert (
        "5"
        in refused(f'<recipe><recipe node="b">{one * 3}</recipe>{one}</recipe>', limits=limits)
        .problems[-1]
        .message
    )


def test_names_are_matched_without_case_and_a_name_in_two_cases_is_an_error():
    recipe = load_recipe('<RECIPE Name="a"><CLI COMMAND="ls -l" Timeout-MS="5"/></RECIPE>')
    assert recipe.name == "a"
    assert recipe.steps[0].argv == ("ls", "-l")
    assert recipe.steps[0].timeout_ms == 5
    problem = only(cli('weight="1" WEIGHT="2"'))
    assert (problem.attribute, "twice" in problem.message) == ("weight", True)


def test_a_declared_encoding_does_not_change_what_a_text_says():
    xml = '<?xml version="1.0" encoding="latin-1"?><recipe><cli><arg>echo</arg><arg>ü€</arg></cli></recipe>'
    assert load_recipe(xml).steps[0].argv == ("echo", "ü€")


def test_comments_and_instructions_leave_no_trace():
    xml = "<recipe><!-- a --><?b c?><cli><arg>ec<!-- d -->ho</arg></cli></recipe>"
    assert load_recipe(xml).steps[0].argv == ("echo",)


def test_namespaces_are_said_to_mean_nothing():
    assert "xmlns" in only('<recipe xmlns:a="urn:x"><a:cli command="a"/></recipe>').message


def shape(node):
    return node.name, node.attributes, node.text, node.tail, [shape(child) for child in node.children]


def test_writing_reads_back_to_the_same_tree():
    xml = (
        '<recipe><cli command="a&#10;b&#9;c&#13;d &lt;&amp;&quot;&gt;\'"><arg>a&#13;&#10;b ]]&gt; c</arg>'
        "<arg><![CDATA[<<<<<&&&&& ]]]]><![CDATA[> <<<]]></arg><arg/> tail <arg> </arg></cli></recipe>"
    )
    first = read(xml, Limits(), Collector("a"))
    again = read(write(first), Limits(), Collector("b"))
    assert shape(again) == shape(first)
    assert first.children[0].attributes["command"] == "a\nb\tc\rd <&\">'"
