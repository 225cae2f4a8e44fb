"""The two shapes of a log line. Both carry every extra field; neither ever spans lines (a trace is one
string in JSON, indented lines after a readable one)."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _extras(record: logging.LogRecord, fields: Mapping[str, object]) -> dict[str, object]:
    own = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    return {**fields, **own}


def _stamp(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


class JsonLines(logging.Formatter):
    """One JSON object a line: `time` (UTC), `level`, `logger`, `message`, the extra fields, `trace`."""

    def __init__(self, fields: Mapping[str, object] | None = None) -> None:
        super().__init__()
        self._fields = dict(fields or {})

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its newline."""
        line: dict[str, object] = {
            "time": _stamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((key, value) for key, value in _extras(record, self._fields).items() if key not in line)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class Readable(logging.Formatter):
    """`12:00:00.123 warning builder.intake: message  node=alpha recipe=nightly-index-7`, in UTC."""

    def __init__(self, fields: Mapping[str, object] | None = None) -> None:
        super().__init__()
        self._fields = dict(fields or {})

    def format(self, record: logging.LogRecord) -> str:
        """The line, and a trace on lines of its own."""
        extras = "".join(f" {key}={_word(value)}" for key, value in _extras(record, self._fields).items())
        name = record.name.removeprefix("bakemesh.")
        message = record.getMessage().replace("\n", "\\n")
        line = f"{_stamp(record)[11:-1]} {record.levelname.lower():7} {name}: {message}"
        if extras:
            line += f" {extras}"
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "\n" + "\n".join(f"  {part}" for part in trace.splitlines())
        return line


def _word(value: object) -> str:
    text = str(value)
    plain = bool(text) and not any(c.isspace() or c == '"' for c in text)
    return text if plain else json.dumps(text, ensure_ascii=False)
