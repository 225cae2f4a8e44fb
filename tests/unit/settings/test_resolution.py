"""Flag before environment before file before default; origins and problems."""

from pathlib import Path

import pytest

from bakemesh.settings import ROWS, Origin, SettingRefused, find_toml, load
from bakemesh.settings.values import NodeName


def toml(folder: Path, text: str) -> Path:
    path = folder / "bakemesh.toml"
    path.write_text(text)
    return path


def test_each_place_gives_way_to_the_one_before_it(tmp_path):
    path = toml(tmp_path, 'mesh = "from-file"\nmax-bakes = 3\nnode = "alpha=a1"\n')
    settings = load({"mesh": "from-flag"}, {"BAKEMESH_MESH": "from-env", "BAKEMESH_MAX_BAKES": "5"}, path)
    assert (settings.mesh, settings.origin("mesh"), settings.kind("mesh")) == (
        "from-flag",
        "--mesh",
        Origin.FLAG,
    )
    assert (settings.max_bakes, settings.origin("max-bakes")) == (5, "BAKEMESH_MAX_BAKES")
    assert (settings.node, settings.origin("node")) == (NodeName("alpha", "a1"), f"{path}: node")
    assert (settings.durability, settings.origin("durability")) == ("process", "default")


def test_a_flag_that_was_not_given_and_an_empty_variable_count_for_nothing():
    settings = load({"mesh": None}, {"BAKEMESH_MESH": ""})
    assert settings.kind("mesh") is Origin.DEFAULT


def test_every_problem_is_reported_at_once_with_its_origin(tmp_path):
    path = toml(tmp_path, 'durabilty = "power"\nkill-grace-ms = "soon"\n')
    with pytest.raises(SettingRefused) as refused:
        load({"mesh": "a.b"}, {"BAKEMESH_MAX_BAKES": "0", "BAKEMESH_NATS": "http://x"}, path)
    by_setting = {problem.setting: problem for problem in refused.value.problems}
    assert "did you mean 'durability'" in by_setting["durabilty"].reason
    assert by_setting["durabilty"].origin == str(path)
    assert "'.'" in by_setting["mesh"].reason
    assert "from 1 to 10000" in by_setting["max-bakes"].reason
    assert by_setting["max-bakes"].origin == "BAKEMESH_MAX_BAKES"
    assert "nats, tls, ws, wss" in by_setting["nats"].reason


def test_the_files_own_problems_are_all_reported(tmp_path):
    path = toml(tmp_path, 'kill-grace-ms = "soon"\nmax-bakes = true\noperators = ["a", "b c"]\n')
    with pytest.raises(SettingRefused) as refused:
        load({}, {}, path)
    assert {problem.setting for problem in refused.value.problems} == {
        "kill-grace-ms",
        "max-bakes",
        "operators",
    }


@pytest.mark.parametrize("text", ["mesh = ", "mesh = 'x'\n[section]\n"])
def test_a_broken_file_names_itself(tmp_path, text):
    path = toml(tmp_path, text)
    with pytest.raises(SettingRefused, match=str(path)):
        load({}, {}, path)


def test_a_missing_file_that_was_named_is_refused(tmp_path):
    with pytest.raises(SettingRefused, match="cannot be read"):
        load({}, {}, tmp_path / "none.toml")


def test_the_file_is_looked_for_in_order(tmp_path):
    home, here = tmp_path / "home", tmp_path / "here"
    (home / ".config" / "bakemesh").mkdir(parents=True)
    here.mkdir()
    in_home = toml(home / ".config" / "bakemesh", "")
    environ = {"HOME": str(home)}
    assert find_toml(None, environ, here) == in_home
    in_folder = toml(here, "")
    assert find_toml(None, environ, here) == in_folder
    assert find_toml(None, environ | {"BAKEMESH_CONFIG": "/x.toml"}, here) == Path("/x.toml")
    assert find_toml("/y.toml", environ | {"BAKEMESH_CONFIG": "/x.toml"}, here) == Path("/y.toml")


def test_a_relative_path_is_relative_to_where_it_was_written(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    path = toml(tmp_path, 'state = "run/../kept"\n')
    assert load({}, {}, path).state == tmp_path / "kept"
    assert load({"state": "kept"}, {}, path).state == elsewhere / "kept"


def test_defaults_pass_their_own_readers_and_survive_the_way_through_flags():
    settings = load({}, {"HOME": "/home/x"})
    flags = settings.as_flags(row.key for row in ROWS)
    again = load(dict(flag.removeprefix("--").split("=", 1) for flag in flags), {"HOME": "/home/y"})
    assert again == settings


def test_given_values_survive_the_way_through_flags():
    given = {
        "nats": "tls://a:1,nats://b",
        "node": "n=i",
        "operators": ["x", "y"],
        "accept-forwarded": "no",
        "listen": "[::1]:0",
        "control-rate": "2.5/s",
        "store-max-bytes": "1GiB",
        "join": "hub",
        "creds": "/k",
    }
    settings = load(given, {"HOME": "/"})
    parsed: dict[str, object] = {}
    for flag in settings.as_flags(row.key for row in ROWS):
        key, value = flag.removeprefix("--").split("=", 1)
        if key == "operator":
            parsed.setdefault("operators", []).append(value)
        else:
            parsed[key] = value
    assert load(parsed, {}) == settings
    assert settings.nats == ("tls://a:1", "nats://b:4222")
    assert settings.listen == ("::1", 0)
    assert settings.store_max_bytes == 1024**3


def test_rows_and_attributes_are_the_same_set():
    settings = load({}, {"HOME": "/"})
    for row in ROWS:
        settings.value(row.key)
        settings.shown(row.key)
    assert set(settings.origins) == {row.name for row in ROWS}
