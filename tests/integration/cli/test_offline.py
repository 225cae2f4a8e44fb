"""What the command line does without a bus: help, check, config, doctor, refusals, exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bakemesh.cli.verbs import VERBS
from support.commandline import PROGRAM, bakemesh, environment

HELLO = Path(__file__).parents[3] / "examples" / "hello" / "recipe.xml"
GOOD = '<recipe name="r"><cli name="one" command="true"/></recipe>'
BAD = '<recipe name="r">\n<cli name="a" command="true" retyable="yes"/>\n<clii/>\n</recipe>'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def test_help_lists_every_verb_and_every_verb_has_an_example(home):
    shown = bakemesh("--help", home=home).stdout.decode()
    for verb in VERBS:
        assert f"\n  {verb} " in shown
        own = bakemesh(verb, "--help", home=home)
        assert own.returncode == 0
        text = own.stdout.decode()
        assert "example:\n  " in text
        assert f"bakemesh {verb}" in text.split("example:")[1] or f" bakemesh {verb}" in text
        assert "--json" in text


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["bkae", "x"], b"did you mean 'bake'?"),
        (["check"], b"required: FILE"),
        (["check", "--nope", "x"], b"--help"),
        (["check", "/nowhere.xml"], b"No such file"),
        (["bake", "/nowhere.xml"], b"No such file"),
        (["bake", str(HELLO), "--param", "x"], b"expected K=V"),
        (["bake", str(HELLO), "--data", "/nowhere"], b"no such file"),
        (["bake", str(HELLO), "--expires", "0"], b"above 0"),
        (["bake", str(HELLO), "--expires", "nan"], b"above 0"),
        (["bake", str(HELLO), "--expires", "inf"], b"above 0"),
        (["up", "--for", "nan"], b"0 or more"),
        (["control", "stop", "a-b-1"], b"invalid choice"),
        (["push", "a-b-1", "--request", "x"], b"required"),
        (["push", "a-b-1", "--request", "x", "--file", "/nowhere"], b"/nowhere"),
        (["bakes", "--limit", "-1"], b"0 or more"),
        (["config", "--mesh", "a.b"], b"(from --mesh)"),
        (["config", "--config", "/nowhere.toml"], b"/nowhere.toml"),
        (["up", "demo.xml"], b"name the file of a PsySpec"),
        (["up", "--for", "-1"], b"expected seconds"),
        (["up", "--nats", "nats://127.0.0.1:1", "--join", "nats://127.0.0.1:2"], b"give one of the two"),
        (["up", "--node", "n" * 33], b"(from --node)"),
    ],
)
def test_a_usage_error_is_one_line_on_stderr_and_exit_code_2(home, args, said):
    done = bakemesh(*args, home=home)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stderr.startswith(b"bakemesh: ")
    assert done.stderr.count(b"\n") == 1
    assert done.stdout == b""


def test_debug_adds_the_trace(home):
    assert b"Traceback" in bakemesh("check", "/nowhere.xml", "--debug", home=home).stderr


@pytest.mark.parametrize(
    "args", [["bakes"], ["nodes"], ["logs", "a-b-1"], ["control", "pause", "a-b-1"], ["bake", "-"]]
)
def test_no_server_is_exit_code_5_and_names_the_address(home, args):
    done = bakemesh(*args, home=home, stdin=GOOD.encode(), BAKEMESH_NATS="nats://127.0.0.1:1")
    assert done.returncode == 5
    assert b"nats://127.0.0.1:1" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_check_takes_the_example(home):
    done = bakemesh("check", str(HELLO), home=home)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(f"{HELLO}: ok, recipe hello, ".encode())


def test_check_reads_stdin(home):
    assert bakemesh("check", "-", home=home, stdin=GOOD.encode()).stdout == b"-: ok, recipe r, 1 step\n"


def test_check_shows_all_problems_of_all_files(home):
    good, bad = home / "good.xml", home / "bad.xml"
    good.write_text(GOOD)
    bad.write_text(BAD)
    done = bakemesh("check", str(good), str(bad), home=home)
    assert done.returncode == 2
    assert b"good.xml: ok" in done.stdout
    lines = done.stderr.decode().splitlines()
    assert any(line.startswith(f"{bad}:2: ") and "retryable" in line for line in lines)
    assert any(line.startswith(f"{bad}:3: ") and "<clii>" in line for line in lines)
    found = json.loads(bakemesh("check", str(good), str(bad), "--json", home=home).stdout)
    assert found["ok"] is False
    assert [file["ok"] for file in found["files"]] == [True, False]
    assert {problem["line"] for problem in found["files"][1]["problems"]} == {2, 3}
    assert found["files"][0]["steps"] == [{"name": "one", "kind": "cli"}]


SYSTEM = """<psySpec name="demo"><include file="parts/nodes.inc"/>
<module name="a" node="alpha"><crank script="a.py"/></module>
<module name="b"><crank command="b"/></module><psyprobe/>
</psySpec>"""


def test_check_takes_a_psyspec_with_its_files(home):
    (home / "parts").mkdir()
    (home / "parts" / "nodes.inc").write_text("<include><node name='alpha' id='a1'/></include>")
    (home / "a.py").write_text("def crank(api): ...\n")
    (home / "demo.xml").write_text(SYSTEM)
    done = bakemesh("check", "demo.xml", home=home)
    assert done.returncode == 0
    assert done.stdout == b"demo.xml: ok, PsySpec demo, 2 modules on 2 nodes\n"
    assert done.stderr.startswith(b"demo.xml:3: warning: <psyprobe>: ")
    (file,) = json.loads(bakemesh("check", "demo.xml", "--json", home=home).stdout)["files"]
    assert [(module["name"], module["node"]) for module in file["modules"]] == [("a", "alpha"), ("b", None)]
    assert file["nodes"] == [{"name": "alpha", "id": "a1"}]
    assert [warning["line"] for warning in file["warnings"]] == [3]
    assert bakemesh("check", "-", home=home, stdin=SYSTEM.encode()).returncode == 0


def test_check_warns_of_what_only_the_node_can_tell(home):
    (home / "mixed.xml").write_text(
        '<psySpec><node name="alpha"/><module name="a" node="alpha"><crank command="a"/></module>\n'
        '<module name="b" depends="a"><crank command="b"/></module></psySpec>'
    )
    done = bakemesh("check", "mixed.xml", home=home)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(
        b"mixed.xml:2: warning: <module> depends=: 'a' is on node alpha, this one on the node whose PsySpec"
        b" it is: only the Startup Supervisor of node alpha takes this"
    )


def test_check_names_the_files_of_a_psyspec_where_its_problems_are(home):
    (home / "parts").mkdir()
    (home / "parts" / "nodes.inc").write_text("<include>\n<node name='alpha' idd='a1'/></include>")
    (home / "demo.xml").write_text(SYSTEM)
    done = bakemesh("check", "demo.xml", home=home)
    assert done.returncode == 2
    assert done.stdout == b""
    first, second = done.stderr.decode().splitlines()
    assert first.startswith("demo.xml:2: <crank> script=: 'a.py' cannot be read: No such file")
    assert first != second
    assert second.startswith("parts/nodes.inc:2: <node> idd=: unknown attribute; did you mean 'id'?")


def test_check_refuses_what_is_no_text(home):
    (home / "x.xml").write_bytes(b"\xff\xfe")
    done = bakemesh("check", "x.xml", home=home)
    assert done.returncode == 2
    assert b"byte 0 is no UTF-8" in done.stderr


def test_check_and_help_import_no_bus(home):
    (home / "r.xml").write_text(GOOD)
    code = (
        "import sys; from bakemesh.cli.__main__ import main; main(sys.argv[1:]);"
        "print([name for name in ('asyncio', 'nats', 'rich', 'sqlite3') if name in sys.modules])"
    )
    for args in (["--help"], ["check", "r.xml"], ["config"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *args],
            capture_output=True,
            text=True,
            env=environment(home),
            cwd=home,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == "[]", args


def test_config_tells_origins(home):
    (home / "bakemesh.toml").write_text('max-bakes = 3\nmesh = "fromfile"\n')
    done = bakemesh("config", "--json", "--node", "alpha=a1", home=home, BAKEMESH_MESH="fromenv")
    found = json.loads(done.stdout)
    by_key = {row["key"]: row for row in found["settings"]}
    assert (by_key["mesh"]["value"], by_key["mesh"]["origin"]) == ("fromenv", "BAKEMESH_MESH")
    assert (by_key["node"]["value"], by_key["node"]["origin"]) == ("alpha=a1", "--node")
    assert by_key["max-bakes"]["value"] == "3"
    assert by_key["max-bakes"]["origin"].endswith("bakemesh.toml: max-bakes")
    assert by_key["join"]["value"] is None
    assert found["file"] == str(home / "bakemesh.toml")


def test_config_names_variables_that_no_setting_has(home):
    done = bakemesh("config", home=home, BAKEMESH_NATZ="x")
    assert b"BAKEMESH_NATZ" in done.stderr


def test_plain_tables_when_piped(home):
    done = bakemesh("config", home=home)
    assert b"\x1b" not in done.stdout
    header, *rows = done.stdout.decode().splitlines()
    assert header.split() == ["SETTING", "VALUE", "FROM", "VARIABLE"]
    assert any(row.split()[:2] == ["durability", "process"] for row in rows)


def test_doctor_says_what_is_missing_and_how_to_mend_it(home):
    done = bakemesh("doctor", "--json", "--nats", "nats://127.0.0.1:1", home=home)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["ok"] is False
    by_matter = {finding["matter"]: finding for finding in found["findings"]}
    assert by_matter["bus"]["state"] == "missing"
    assert "--nats" in by_matter["bus"]["mend"]
    assert by_matter["nats-server"]["state"] == "ok"
    assert str(home / "state") in by_matter["state folder"]["found"]


def test_doctor_takes_a_machine_without_a_server_for_healthy(home):
    done = bakemesh("doctor", home=home)
    assert done.returncode == 0
    assert b"bakemesh up" in done.stdout


WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({absent}))
from bakemesh.cli.__main__ import entry
entry()
"""


def without(absent: tuple[str, ...], *words: str, home: Path) -> subprocess.CompletedProcess[bytes]:
    """The command line on a machine where these packages are not installed."""
    program = [sys.executable, "-c", WITHOUT.format(absent=absent), *words]
    return subprocess.run(program, capture_output=True, env=environment(home), cwd=home, check=False)


def test_packages_that_the_signed_edge_lacks_are_one_line_and_what_to_install(home):
    for words, absent in (
        (("axon", "--hotkey", "me.json"), ("uvicorn", "sr25519")),
        (("hotkey", "new", "me.json"), ("sr25519",)),
        (("call", "http://127.0.0.1:1", "Synapse"), ("sr25519",)),
    ):
        done = without(absent, *words, home=home)
        said = done.stderr.decode()
        assert done.returncode == 2, said
        assert said.count("\n") == 1
        assert all(name in said for name in (*absent, "pip install 'bakemesh[axon]'")), said
    found = json.loads(without(("aiohttp",), "doctor", "--json", home=home).stdout)["findings"]
    (row,) = [each for each in found if each["matter"] == "axon"]
    assert row["state"] == "warning"
    assert "aiohttp" in row["found"]
    assert row["mend"] == "pip install 'bakemesh[axon]'"


def test_doctor_finds_a_state_folder_that_is_none(home):
    (home / "file").write_text("")
    done = bakemesh("doctor", "--json", "--state", str(home / "file" / "x"), home=home)
    found = {finding["matter"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found["state folder"]["state"] == "missing"
    assert done.returncode == 1


def test_a_reader_that_goes_away_is_no_trace(home):
    with subprocess.Popen(
        [*PROGRAM, "config"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(home), cwd=home
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
