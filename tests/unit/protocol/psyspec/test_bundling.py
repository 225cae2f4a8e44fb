"""Files put together: what is included, which scripts travel, and where problems are said to be."""

from __future__ import annotations

import pytest

from bakemesh.protocol.builder.spec.component import ScriptCrank
from bakemesh.protocol.builder.spec.problems import Problem
from bakemesh.protocol.psyspec import (
    NodeEntry,
    PsySpec,
    PsySpecRefused,
    bundle,
    load_psyspec,
    read_psyspec,
)
from support.psyspecs import SCRIPT

Files = dict[str, str | bytes]


def reader(files: Files):
    def read(path: str) -> str:
        if path not in files:
            raise FileNotFoundError(2, "No such file or directory", path)
        text = files[path]
        return text.decode() if isinstance(text, bytes) else text

    return read


def whole(files: Files, main: str = "site/main.xml") -> PsySpec:
    text = files[main]
    assert isinstance(text, str)
    found = read_psyspec(text, file=main, read=reader(files))
    assert load_psyspec(bundle(text, file=main, read=reader(files))) == found
    return found


def refused(files: Files, main: str = "site/main.xml") -> tuple[Problem, ...]:
    text = files[main]
    assert isinstance(text, str)
    with pytest.raises(PsySpecRefused) as caught:
        read_psyspec(text, file=main, read=reader(files))
    return caught.value.problems


def including(*names: str) -> str:
    return "<psySpec>" + "".join(f'<include file="{name}"/>' for name in names) + "</psySpec>"


def test_files_are_found_beside_the_file_that_names_them() -> None:
    files: Files = {
        "site/main.xml": including("inc/nodes.inc", "../common/all.xml"),
        "site/inc/nodes.inc": '\ufeff<include><node name="alpha" id="a1"/></include>',
        "common/all.xml": """<?xml version="1.0"?>
            <psySpec name="not asked for"><variable name="Dir" value="scripts"/>
              <module name="m" node="alpha"><crank script="%Dir%/a.py"/></module>
              <module name="n" node="alpha"><crank script="./scripts/a.py" function="other"/></module>
            </psySpec>""",
        "common/scripts/a.py": "\ufeff" + SCRIPT,
    }
    found = whole(files)
    assert found.name == "psyspec"
    assert found.nodes == (NodeEntry("alpha", "a1"),)
    assert [entry.spec.crank for entry in found.modules] == [
        ScriptCrank(script="scripts/a.py", source=SCRIPT),
        ScriptCrank(script="./scripts/a.py", function="other", source=SCRIPT),
    ]
    assert {(entry.file, entry.line) for entry in found.modules} == {
        ("common/all.xml", 3),
        ("common/all.xml", 4),
    }
    text = bundle(str(files["site/main.xml"]), file="site/main.xml", read=reader(files))
    assert text.count("async def crank") == 1, "a script that two modules name travels once"


def test_what_stays_as_it_is() -> None:
    files: Files = {
        "site/main.xml": """<psySpec>
          <module name="m"><crank script="/srv/a.py"/></module>
          <module name="n"><crank script="inline.py">def crank(api): ...</crank></module>
          <module name="o"><crank command="run ./a.py"/></module>
        </psySpec>"""
    }
    m, n, _ = (entry.spec.crank for entry in whole(files).modules)
    assert m == ScriptCrank(script="/srv/a.py")
    assert n == ScriptCrank(script="inline.py", source="def crank(api): ...")


@pytest.mark.parametrize(
    "source",
    [
        "x = ']]>'\r\ny = '<&>'\n",
        "# $ $$ ${node} %s %% %name%\n",
        "\n\n  # not indented as a whole\nx = 1",
        "é\u2028 \U0001f600\t\n",
        '"""<![CDATA["""\n' * 30,
    ],
)
def test_a_script_arrives_as_it_is(source: str) -> None:
    files: Files = {
        "site/main.xml": '<psySpec><module name="m"><crank script="a.py"/></module></psySpec>',
        "site/a.py": source,
    }
    assert whole(files).modules[0].spec.crank == ScriptCrank(script="a.py", source=source)


def test_problems_name_the_file_and_line_of_their_author() -> None:
    files: Files = {
        "site/main.xml": """<psySpec>
  <!-- several
       lines -->
  <module name="m"
          restart="always"
          oops="1">
    <crank script="a.py"/>
    <trigger name="t" type="A..B"/>
  </module>
  <include file="b.inc"/> <cohort name="c" nodes="nowhere"/>
  <module name="m"><crank command="a"/></module>
</psySpec>""",
        "site/a.py": "# one\n# two\n# three\n",
        "site/b.inc": """<include>

  <node name="alpha" id="any"/><module name="x" node="alpha" depends="y"><crank command="a"/></module>
</include>""",
    }
    assert [str(problem).partition(": <")[0] for problem in refused(files)] == [
        "site/main.xml:4",
        "site/main.xml:8",
        "site/main.xml:10",
        "site/main.xml:11",
        "site/b.inc:3",
        "site/b.inc:3",
    ]
    assert any("taken by the <module> in line 4 of site/main.xml" in str(each) for each in refused(files))


def test_problems_of_files_and_of_what_they_say_come_at_once() -> None:
    files: Files = {
        "site/main.xml": """<psySpec>
  <module name="m"><crank script="missing.py"/></module>
  <module name="n" restart="x"><crank script="bad.py"/></module>
</psySpec>""",
        "site/bad.py": "x = 1\ny = '\x0c'",
    }
    first, second, third = refused(files)
    assert "'site/missing.py' cannot be read: No such file or directory" in str(first)
    assert "holds U+000C in line 2, which XML cannot carry" in str(second)
    assert third.attribute == "restart"
    with pytest.raises(PsySpecRefused) as caught:
        bundle(str(files["site/main.xml"]), file="site/main.xml", read=reader(files))
    assert caught.value.problems == (first, second)


MODULE = '<psySpec><module name="m"><crank script="a.py"/></module></psySpec>'


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"main.xml": including("gone.inc")}, "main.xml:1: <include> file=: 'gone.inc' cannot be read"),
        ({"main.xml": "<psySpec><include/></psySpec>"}, "main.xml:1: <include> file=: is missing"),
        ({"main.xml": including("main.xml")}, "main.xml → main.xml: a file cannot include itself"),
        (
            {
                "main.xml": including("a"),
                "a": including("b"),
                "b": "<include>\n<include file='./x/../a'/></include>",
            },
            "b:2: <include> file=: a → b → a: a file cannot include itself",
        ),
        ({"main.xml": including("a"), "a": "<include>\n<oops></include>"}, "a:2: not well-formed XML"),
        ({"main.xml": including("a"), "a": "<recipe/>"}, "a:1: <recipe>: an included file's root is"),
        ({"main.xml": including("a"), "a": b"<include>\xff</include>"}, "'a' is no UTF-8 text"),
        ({"main.xml": including("a"), "a": "<!DOCTYPE a><include/>"}, "a:1: a document type"),
        ({"main.xml": including("a"), "a": "<include>text</include>"}, "a:1: <include>: text 'text'"),
        (
            {"main.xml": including("0"), **{str(n): including(str(n + 1)) for n in range(20)}},
            "7:1: <include> file=: includes are nested deeper than 8",
        ),
        (
            {"main.xml": including(*["a"] * 300), "a": "<include/>"},
            "more than 200 files",
        ),
        ({"main.xml": MODULE, "a.py": " \n"}, "'a.py' is empty"),
        ({"main.xml": MODULE, "a.py": "#" * (5 << 20)}, "'a.py' is 5,242,880 characters long"),
        ({"main.xml": MODULE, "a.py": b"\xff"}, "'a.py' is no UTF-8 text"),
    ],
)  # fmt: skip
def test_wrong_files(files: Files, said: str) -> None:
    (problem,) = refused(files, "main.xml")
    assert said in str(problem)


def test_a_wrong_variable_is_said_once() -> None:
    files: Files = {
        "main.xml": '<psySpec><module name="m"><crank script="%B%/a.py"/></module></psySpec>',
        "/a.py": SCRIPT,
    }
    assert "no variable is named 'B'" in str(refused(files, "main.xml")[0])


def test_a_file_named_by_hand_beside_is_read_from_here() -> None:
    files: Files = {"-": MODULE, "a.py": SCRIPT}
    assert whole(files, "-").modules[0].spec.crank == ScriptCrank(script="a.py", source=SCRIPT)
