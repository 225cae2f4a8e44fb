"""The units of deploy/systemd: systemd takes them, and what they name the command line has."""

from __future__ import annotations

import argparse
import configparser
import importlib
import inspect
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bakemesh.axon import __main__ as axon
from bakemesh.axon.service import AxonSettings
from bakemesh.builder import __main__ as builder
from bakemesh.settings import load
from bakemesh.settings.table import ROWS

DEPLOY = Path(__file__).parents[3] / "deploy" / "systemd"
UNITS = sorted(DEPLOY.glob("*.service"))
PROGRAM = "/opt/bakemesh/bin/bakemesh"


class _Unit(configparser.RawConfigParser):
    """A unit file; of keys that come twice the last one counts here."""

    def __init__(self, path: Path) -> None:
        super().__init__(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
        self.optionxform = str  # type: ignore[assignment,method-assign]
        self.read(path)


def environment(path: Path) -> dict[str, str]:
    """The variables of an environment file, those that are commented out too."""
    lines = [line.lstrip("#") for line in path.read_text().splitlines()]
    return dict(line.split("=", 1) for line in lines if line.startswith("BAKEMESH_"))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_its_command_line_is_one_that_the_cli_takes(path: Path) -> None:
    program, verb, *rest = shlex.split(_Unit(path)["Service"]["ExecStart"])
    assert program == PROGRAM
    parser = argparse.ArgumentParser(exit_on_error=False)
    importlib.import_module(f"bakemesh.cli.verbs.{verb}").add(parser)
    parsed, unknown = parser.parse_known_args(rest)
    assert unknown == []
    assert str(parsed.setting_state) == "/var/lib/bakemesh"


def test_a_builder_that_ends_for_good_is_not_started_again() -> None:
    service = _Unit(DEPLOY / "bakemesh-node.service")["Service"]
    final = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert final == {builder.USAGE, builder.TAKEN, 7}
    assert builder.UNREACHABLE not in final


def test_a_gateway_ends_in_order_and_is_not_started_again_where_its_flags_are_wrong() -> None:
    service = _Unit(DEPLOY / "bakemesh-axon.service")["Service"]
    assert service["RestartPreventExitStatus"] == str(axon.USAGE)
    assert axon.UNREACHABLE != axon.USAGE  # a bus that is away is waited for
    drain_s = inspect.signature(AxonSettings).parameters["drain_s"].default
    assert drain_s < int(service["TimeoutStopSec"])


def test_components_outlive_their_builder() -> None:
    service = _Unit(DEPLOY / "bakemesh-node.service")["Service"]
    assert service["KillMode"] == "process"
    assert service["Delegate"] == "yes"
    assert "--on-stop keep" in service["ExecStart"]
    # What would take something away from them, or from the groups that they are put in.
    assert not {"PrivateTmp", "ProtectControlGroups", "PrivatePIDs", "RuntimeMaxSec"} & set(service)


def test_the_example_of_the_environment_is_made_of_settings() -> None:
    found = environment(DEPLOY / "node.env.example")
    assert set(found) <= {row.env for row in ROWS}
    settings = load({}, found, None)
    assert settings.nats == tuple(found["BAKEMESH_NATS"].split(","))
    assert settings.on_stop == "auto"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    for path in UNITS:
        text = path.read_text().replace(PROGRAM, sys.executable).replace("=bakemesh\n", "=root\n")
        (tmp_path / path.name).write_text(text)
    argv = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / path.name) for path in UNITS)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
