"""A JSON Schema to a grammar, such that every text of the grammar is JSON that satisfies the schema. Pure.

Guarantees: sound, or refused. A keyword that is not honoured here is named in a SchemaRefused, never passed
over (the binding's own converter passes over bounds, `oneOf`, siblings of `$ref` and more). The grammar may be
narrower than the schema: properties come in the order they are declared, others are not made up, and strings
are written without \\u escapes.

| honoured | |
|---|---|
| any | `true`, `{}`, `type` (one or several), `const`, `enum`, `anyOf`, `oneOf` of what excludes itself, `allOf` of one, `$ref` into the schema |
| object | `properties`, `required`, `additionalProperties` |
| array | `items`, `prefixItems`, `minItems`, `maxItems` |
| string | `minLength`, `maxLength`, `format` date, time, date-time, uuid |
| integer, number | `minimum`, `maximum`, for integers also the exclusive ones; of numbers whole bounds |
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

_NOTES = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
_NOTES |= {"$schema", "$id", "$comment", "$defs", "definitions"}
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_MOST = 2000  # repetitions that llama.cpp's grammars take
_RULES = {
    "ws": '" "?',
    "char": r'[^"\\\x00-\x1F\x7F] | "\\" ["\\/bfnrt]',
    "string": '"\\"" char* "\\""',
    "digits": "[0-9]{1,15}",
    "whole": '"0" | [1-9] [0-9]{0,14}',
    "integer": '"-"? whole',
    "number": '"-"? whole ("." digits)? ([eE] [-+]? [0-9] [0-9]?)?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "object": '"{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}"',
    "array": '"[" ws (value ("," ws value)*)? "]"',
    "value": "object | array | string | number | boolean | null",
    "date": '[12] [0-9] [0-9] [0-9] "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | "1" [0-9] | "2" [0-8])',
    "time": '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] "Z"',
    "hex": "[0-9a-f]",
}
_FORMATS = {
    "date": '"\\"" date "\\""',
    "time": '"\\"" time "\\""',
    "date-time": '"\\"" date "T" time "\\""',
    "uuid": '"\\"" hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12} "\\""',
}


class SchemaRefused(ValueError):
    """Raised when a schema asks for what a grammar cannot promise; says where and what."""


def grammar(schema: Any) -> str:
    """The GBNF text, its root rule `root`. Raises SchemaRefused."""
    return _Writer(schema).text()


class _Writer:
    """One conversion: rules by name, and those for `$ref` by their path."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._rules = dict(_RULES)
        self._refs: dict[str, str] = {}
        try:
            self._rules["root"] = self._of(schema, "#")
        except RecursionError:
            raise SchemaRefused("the schema is nested too deeply") from None

    def text(self) -> str:
        return "\n".join(f"{name} ::= {rule}" for name, rule in self._rules.items())

    def _rule(self, body: str) -> str:
        name = f"r{len(self._rules)}"
        self._rules[name] = body
        return name

    def _of(self, schema: Any, at: str) -> str:
        """The right side that makes what the schema allows, to be used as one item."""
        if schema is True:
            return "value"
        if not isinstance(schema, dict):
            raise SchemaRefused(f"{at}: {json.dumps(schema)[:60]} allows nothing, or is no schema")
        said = schema.keys() - _NOTES
        for key, make in _WHOLE.items():
            if key in said:
                if beside := said - {key} - ({"type"} if key in ("const", "enum") else set()):
                    raise SchemaRefused(f"{at}: {', '.join(sorted(beside))} beside {key} is not honoured")
                return make(self, schema, at)
        types = schema.get("type", list(_TYPES) if not said else None)
        if types is None:
            types = _meant(said, at)
        listed = [types] if isinstance(types, str) else types
        if not isinstance(listed, list) or not listed or not all(each in _TYPES for each in listed):
            raise SchemaRefused(f"{at}: type must be of {', '.join(_TYPES)}, not {json.dumps(types)[:60]}")
        keywords = frozenset().union(*(_KEYWORDS[each] for each in listed))
        if unknown := said - {"type"} - keywords:
            raise SchemaRefused(f"{at}: {', '.join(sorted(unknown))} is not honoured by a grammar")
        if not said:
            return "value"
        return self._either(_BY_TYPE[each](self, schema, at) for each in listed)

    def _either(self, bodies: Iterable[str]) -> str:
        listed = list(dict.fromkeys(bodies))
        return listed[0] if len(listed) == 1 else f"({' | '.join(listed)})"

    def _ref(self, schema: dict[str, Any], at: str) -> str:
        path = schema["$ref"]
        if not isinstance(path, str) or not (path == "#" or path.startswith("#/")):
            raise SchemaRefused(f"{at}: $ref {json.dumps(path)[:80]} does not point into the schema itself")
        if path not in self._refs:
            self._refs[path] = name = self._rule("")
            self._rules[name] = self._of(self._target(path, at), path)
        return self._refs[path]

    def _target(self, path: str, at: str) -> Any:
        target = self._schema
        for step in path.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or step not in target:
                raise SchemaRefused(f"{at}: $ref {path} points to nothing")
            target = target[step]
        return target

    def _enum(self, schema: dict[str, Any], at: str) -> str:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        if not isinstance(values, list) or not values:
            raise SchemaRefused(f"{at}: enum must be a list with a value in it")
        types = schema.get("type")
        wanted = [types] if isinstance(types, str) else types
        fit = [each for each in values if wanted is None or _kinds(each) & set(wanted)]
        if not fit:
            raise SchemaRefused(f"{at}: no value is of the type {json.dumps(types)[:60]}")
        return self._either(_literal(_json(each)) for each in fit)

    def _any_of(self, schema: dict[str, Any], at: str) -> str:
        key = "anyOf" if "anyOf" in schema else "oneOf"
        listed = schema[key]
        if not isinstance(listed, list) or not listed:
            raise SchemaRefused(f"{at}: {key} must be a list with a schema in it")
        meant = [
            self._target(each["$ref"], at)
            if isinstance(each, dict) and isinstance(each.get("$ref"), str)
            else each
            for each in listed
        ]
        if key == "oneOf" and not _exclusive(meant):
            raise SchemaRefused(f"{at}: a value may satisfy two schemas of oneOf; say anyOf if that is meant")
        return self._either(self._of(each, f"{at}/{key}/{n}") for n, each in enumerate(listed))

    def _all_of(self, schema: dict[str, Any], at: str) -> str:
        listed = schema["allOf"]
        if not isinstance(listed, list) or len(listed) != 1:
            raise SchemaRefused(f"{at}: allOf of several schemas is not honoured")
        return self._of(listed[0], f"{at}/allOf/0")

    def _object(self, schema: dict[str, Any], at: str) -> str:
        given = schema.get("properties", {})
        required = schema.get("required", [])
        others = schema.get("additionalProperties", True)
        if not isinstance(given, dict) or not isinstance(required, list):
            raise SchemaRefused(f"{at}: properties must be an object and required a list")
        if missing := [each for each in required if each not in given]:
            raise SchemaRefused(f"{at}: required names {missing[0]!r:.60}, which properties does not have")
        if not given:
            if others is True:
                return "object"
            if others is False:
                return '("{" ws "}")'
            value = self._of(others, f"{at}/additionalProperties")
            one = self._rule(f'string ":" ws {value}')
            return f'("{{" ws ({one} ("," ws {one})*)? "}}")'
        pairs = [
            (name in required, self._rule(f'{_literal(_json(name))} ":" ws {value}'))
            for name, each in given.items()
            for value in [self._of(each, f"{at}/properties/{name}")]
        ]
        return f'("{{" ws {self._members(pairs)} "}}")'

    def _members(self, pairs: list[tuple[bool, str]]) -> str:
        """Pairs in order, those that are not required left out or not, commas between."""
        # From the end: what may follow when something came before, and when nothing did.
        after, first = "", ""
        for needed, pair in reversed(pairs):
            came = self._rule(f'"," ws {pair} {after}')
            begun = self._rule(f"{pair} {after}")
            if needed:
                after, first = came, begun
            else:
                after = f"({came} | {after})" if after else f"{came}?"
                after = self._rule(after)
                first = f"({begun} | {first})" if first else f"{begun}?"
                first = self._rule(first)
        return first

    def _array(self, schema: dict[str, Any], at: str) -> str:
        before = schema.get("prefixItems", [])
        items = schema.get("items", True)
        least, most = _counts(schema, "minItems", "maxItems", at)
        if not isinstance(before, list):
            raise SchemaRefused(f"{at}: prefixItems must be a list")
        if before:
            if least > len(before) or (most is not None and most < len(before)):
                raise SchemaRefused(f"{at}: minItems and maxItems must fit prefixItems")
            parts = [self._of(each, f"{at}/prefixItems/{n}") for n, each in enumerate(before)]
            return '("[" ws ' + ' "," ws '.join(parts) + ' "]")'
        if items is False or most == 0:
            if least:
                raise SchemaRefused(f"{at}: minItems {least}, and no item is allowed")
            return '("[" ws "]")'
        one = self._rule(self._of(items, f"{at}/items"))
        more = _times(f'("," ws {one})', max(least - 1, 0), None if most is None else most - 1)
        return f'("[" ws {one} {more} "]")' if least else f'("[" ws ({one} {more})? "]")'

    def _string(self, schema: dict[str, Any], at: str) -> str:
        wanted = schema.get("format")
        least, most = _counts(schema, "minLength", "maxLength", at)
        if wanted is not None:
            if wanted not in _FORMATS or least or most is not None:
                raise SchemaRefused(f"{at}: format {json.dumps(wanted)[:40]} (with lengths) is not honoured")
            return f"({_FORMATS[wanted]})"
        if not least and most is None:
            return "string"
        return f'("\\"" {_times("char", least, most)} "\\"")'

    def _integer(self, schema: dict[str, Any], at: str) -> str:
        low, high = _bounds(schema, at, exclusive=True)
        if low is None and high is None:
            return "integer"
        return f"({_integers(low, high)})"

    def _number(self, schema: dict[str, Any], at: str) -> str:
        low, high = _bounds(schema, at, exclusive=False)
        if low is None and high is None:
            return "number"
        return f"({_numbers(low, high)})"


_Make = Callable[[_Writer, dict[str, Any], str], str]
_WHOLE: dict[str, _Make] = {
    "$ref": _Writer._ref,
    "const": _Writer._enum,
    "enum": _Writer._enum,
    "anyOf": _Writer._any_of,
    "oneOf": _Writer._any_of,
    "allOf": _Writer._all_of,
}
_BY_TYPE: dict[str, _Make] = {
    "object": _Writer._object,
    "array": _Writer._array,
    "string": _Writer._string,
    "integer": _Writer._integer,
    "number": _Writer._number,
    "boolean": lambda *_: "boolean",
    "null": lambda *_: "null",
}
_NUMERIC = frozenset({"minimum", "maximum"})
_KEYWORDS: dict[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "format"}),
    "integer": _NUMERIC | {"exclusiveMinimum", "exclusiveMaximum"},
    "number": _NUMERIC,
    "boolean": frozenset(),
    "null": frozenset(),
}


def _meant(said: Iterable[str], at: str) -> list[str]:
    """The type that keywords without one are about: narrower than the schema, which lets other types pass."""
    for kind in ("object", "array", "string", "integer"):
        if set(said) <= _KEYWORDS[kind]:
            return [kind]
    raise SchemaRefused(f"{at}: {', '.join(sorted(said))} is not honoured by a grammar")


def _kinds(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number"}
    return {{str: "string", list: "array", dict: "object", type(None): "null"}[type(value)]}


def _exclusive(schemas: list[Any]) -> bool:
    """Whether no value can satisfy two of them: other types, or a required property with other constants."""
    types = [_types(each) for each in schemas]
    if all(types) and sum(map(len, types)) == len(set().union(*types)):
        return True
    tags = [_tags(each) for each in schemas]
    return any(
        len({json.dumps(each[name]) for each in tags}) == len(tags)
        for name in tags[0]
        if all(name in each for each in tags)
    )


def _types(schema: Any) -> set[str]:
    said = schema.get("type") if isinstance(schema, dict) else None
    listed = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    return {"number" if each == "integer" else str(each) for each in listed}


def _tags(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return {}
    given, required = schema.get("properties"), schema.get("required")
    if not isinstance(given, dict) or not isinstance(required, list):
        return {}
    return {
        name: each["const"]
        for name, each in given.items()
        if name in required and isinstance(each, dict) and "const" in each
    }


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _times(item: str, least: int, most: int | None) -> str:
    return "" if most == 0 else f"{item}{{{least},{'' if most is None else most}}}"


def _counts(schema: dict[str, Any], low: str, high: str, at: str) -> tuple[int, int | None]:
    least, most = schema.get(low, 0), schema.get(high)
    for name, value in ((low, least), (high, most)):
        if value is not None and (type(value) is not int or not 0 <= value <= _MOST):
            raise SchemaRefused(f"{at}: {name} must be a whole number from 0 to {_MOST}")
    if most is not None and most < least:
        raise SchemaRefused(f"{at}: {high} is less than {low}")
    return least, most


def _bounds(schema: dict[str, Any], at: str, *, exclusive: bool) -> tuple[int | None, int | None]:
    found: dict[str, int | None] = {}
    for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        value = schema.get(name)
        if value is not None and name.startswith("exclusive") and not exclusive:
            raise SchemaRefused(f"{at}: {name} is not honoured for numbers")
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or abs(value) > 10**15
        ):
            raise SchemaRefused(f"{at}: {name} must be a whole number of at most 15 digits")
        found[name] = value
    lows = [found["minimum"], None if found["exclusiveMinimum"] is None else found["exclusiveMinimum"] + 1]
    highs = [found["maximum"], None if found["exclusiveMaximum"] is None else found["exclusiveMaximum"] - 1]
    low = max((each for each in lows if each is not None), default=None)
    high = min((each for each in highs if each is not None), default=None)
    if low is not None and high is not None and low > high:
        raise SchemaRefused(f"{at}: no number is from {low} to {high}")
    return low, high


def _integers(low: int | None, high: int | None) -> str:
    """Whole numbers of a range, at most 15 digits."""
    low = -(10**15) + 1 if low is None else low
    high = 10**15 - 1 if high is None else high
    parts = []
    if low < 0:
        parts += [f'"-" ({_naturals(max(1, -high), -low)})']
    if high >= 0:
        parts += [_naturals(max(0, low), high)]
    return " | ".join(parts)


def _numbers(low: int | None, high: int | None) -> str:
    """Numbers of a range between whole bounds: each whole number but the outermost may have a fraction."""
    low = -(10**15) + 1 if low is None else low
    high = 10**15 - 1 if high is None else high
    parts = []
    for sign, least, most in (('"-" ', max(0, -high), -low), ("", max(0, low), high)):
        if most < 0:
            continue
        parts.append(f"{sign}({_naturals(most, most)})")
        if least < most:
            parts.append(f'{sign}({_naturals(least, most - 1)}) ("." digits)?')
    return " | ".join(parts)


def _naturals(low: int, high: int) -> str:
    """Decimal numbers from low to high, without leading zeros."""
    parts = []
    while low <= high:
        end = min(high, 10 ** len(str(low)) - 1)
        parts += _same_length(str(low), str(end))
        low = end + 1
    return " | ".join(parts)


def _same_length(low: str, high: str) -> list[str]:
    """Numbers of one length, as digits by digits."""
    if low == high:
        return [f'"{low}"']
    rest = len(low) - 1
    if not rest:
        return [f"[{low}-{high}]"]
    tail = "[0-9]" if rest == 1 else f"[0-9]{{{rest}}}"
    if low[0] == high[0]:
        return [f'"{low[0]}" {each}' for each in _same_length(low[1:], high[1:])]
    parts: list[str] = []
    first, last = int(low[0]), int(high[0])
    if low[1:] != "0" * rest:
        parts += [f'"{low[0]}" {each}' for each in _same_length(low[1:], "9" * rest)]
        first += 1
    upper: list[str] = []
    if high[1:] != "9" * rest:
        upper = [f'"{high[0]}" {each}' for each in _same_length("0" * rest, high[1:])]
        last -= 1
    if first <= last:
        parts.append(f"[{first}-{last}] {tail}")
    return parts + upper
