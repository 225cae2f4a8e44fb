"""The shapes of a log line."""

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh import logs


def line_of(formatter: logging.Formatter, message: str, **fields: object) -> str:
    record = logging.makeLogRecord(
        {"msg": message, "levelno": 30, "levelname": "WARNING", "name": "bakemesh.x"}
    )
    vars(record).update(fields)
    return formatter.format(record)


def test_json_carries_the_fields_of_process_and_call():
    line = json.loads(line_of(logs.JsonLines({"node": "alpha"}), "said", recipe="r-1", seq=3, data=b"x"))
    assert line["message"] == "said"
    assert (line["level"], line["logger"], line["node"], line["recipe"], line["seq"]) == (
        "warning",
        "bakemesh.x",
        "alpha",
        "r-1",
        3,
    )
    assert line["data"] == "b'x'"
    assert line["time"].endswith("Z")


def test_a_field_cannot_hide_the_message():
    assert json.loads(line_of(logs.JsonLines({"message": "no", "level": "no"}), "yes"))["message"] == "yes"


@given(st.text(), st.text())
def test_a_line_is_a_line_whatever_is_said(message, field):
    assert "\n" not in line_of(logs.JsonLines(), message, recipe=field)
    assert "\n" not in line_of(logs.Readable(), message, recipe=field)
    assert json.loads(line_of(logs.JsonLines(), message, recipe=field))["recipe"] == field


@pytest.fixture
def stream():
    """A place to log to; the process's logging is as before afterwards."""
    root, ours = logging.getLogger(), logging.getLogger(logs.ROOT)
    levels, handlers = (root.level, ours.level), list(root.handlers)
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def test_bound_fields_and_the_trace_are_on_the_line(stream):
    logs.setup("json", "debug", stream=stream, node="alpha")
    logger = logs.bound(logs.get("bakemesh.builder.x"), recipe="r-1")
    try:
        raise OSError("disk")
    except OSError:
        logger.debug("failed", exc_info=True, extra={"step": "s"})
    line = json.loads(stream.getvalue())
    assert (line["node"], line["recipe"], line["step"]) == ("alpha", "r-1", "s")
    assert "OSError: disk" in line["trace"]


def test_configured_twice_it_says_everything_once(stream):
    logs.setup("text", stream=stream)
    logs.setup("text", stream=stream)
    logs.get("bakemesh.x").info("once")
    logging.getLogger("elsewhere").info("not ours")
    assert stream.getvalue().count("once") == 1
    assert "not ours" not in stream.getvalue()


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize(("said", "level"), [("DEBUG", "DEBUG"), ("error", "ERROR"), ("loud", "INFO")])
def test_a_components_level_comes_from_its_environment_and_is_never_in_its_way(capsys, said, level):
    logs.setup_component(
        {"BAKEMESH_LOG_LEVEL": said, "BAKEMESH_LOG_FORMAT": "json"}, node="n1", component="c"
    )
    assert logging.getLevelName(logging.getLogger(logs.ROOT).level) == level
    logs.get("bakemesh.x").error("here")
    line = json.loads(capsys.readouterr().err)
    assert (line["node"], line["component"], line["message"]) == ("n1", "c", "here")
