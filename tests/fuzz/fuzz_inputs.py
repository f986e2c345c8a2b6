"""Hostile inputs: strategy texts, suites and record files, from any bytes to those that are right but for one place."""

from __future__ import annotations

import json
import math
from pathlib import Path

from hypothesis import strategies as st

from parbench import fields
from parbench.grammar import Call, Value, unparse

REAL_RECORD = (Path(__file__).parent.parent / "records" / "record-1.0.json").read_bytes()

HOSTILE = (
    "__import__('os').system('touch pwned')",
    "os:system",
    "os.system('touch pwned')",
    "ddp(__import__('os'))",
    "ddp(bucket_cap_mb=open('/etc/passwd'))",
    "ddp(bucket_cap_mb=[x for x in ()])",
    "eval(1)",
    "exec('import this')",
    "antigravity",
    "http://example.org/x.py",
    "../../x",
    "C:\\x",
    "\x00",
    "\x1b]0;owned\x07",
    "\ud800",
    "\uff44\uff44\uff50",
    "ddp\u202e",
    "{0.__class__}",
    "%s%n",
    "=cmd|' /C calc'!A0",
    "!!python/object/apply:os.system ['touch pwned']",
    "9" * 5000,
    "1e999",
    "-inf",
    "nan",
    "",
)
NAMES = ("ddp", "no_overlap", "single", "digits", "text", "gpt", "images", "contention", "mine", "antigravity", "os")
WORDS = ("count", "how", "scale", "names", "where", "bucket_cap_mb", "path", "x", "self", "cls", "__class__", "args")
_ALPHABET = "ab1.-_()[]{}=,:/'\"\\ \t\n\r\x00\x1beE+é\uff44\ud800"


def _named(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[dict[str, Value]]:
    return st.dictionaries(st.sampled_from(WORDS), inner, max_size=3)


texts = st.sampled_from(HOSTILE) | st.text(_ALPHABET, max_size=40) | st.text(max_size=40)
numbers = (
    st.integers()
    | st.sampled_from((0, -1, 1, 2**31, 2**63, 2**64, 10**308, 10**400, -(10**400)))
    | st.floats(allow_nan=False)
)
values: st.SearchStrategy[Value] = st.recursive(
    numbers | st.booleans() | st.none() | texts | st.sampled_from(("ring", "tree", "star", math.inf)),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.builds(Call, st.sampled_from(NAMES), st.lists(inner, max_size=2).map(tuple), _named(inner))
    ),
    max_leaves=5,
)


calls = st.builds(Call, st.sampled_from(NAMES), st.lists(values, max_size=3).map(tuple), _named(values))


@st.composite
def edited(draw: st.DrawFn, of: st.SearchStrategy[str]) -> str:
    """Draw a text and change it in up to three places."""
    text = draw(of)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        until = min(len(text), at + draw(st.integers(0, 4)))
        text = text[:at] + draw(st.sampled_from("()[]{}=,'\"\\ \n1a-.#é\x00") | st.just("")) + text[until:]
    return text


@st.composite
def towers(draw: st.DrawFn) -> str:
    """Draw a text that is long or deep."""
    piece = draw(st.sampled_from(("(", "[", "a(", "a(a=", "[[", "9", "'", "\\", "a,", " ", "a.a", "a(b=1,", "-", "é")))
    times = draw(st.sampled_from((*range(28, 40), 200, 1500, 5000)))
    return draw(st.sampled_from(("", "ddp(", "p([", "p('"))) + piece * times + draw(st.sampled_from(("", ")", "])")))


strategy_texts = texts | edited(calls.map(unparse)) | towers()


# ---- suites

_LITERALS = st.sampled_from(
    ('"ddp"', '"digits"', '"smoke"', '"single"', '["ddp", "single"]', "[1, 2]", "2", "true", "-1", "[]", "{}", "1e309")
)
_ODD = st.sampled_from(
    (
        *("nan", "-inf", "1979-05-27T07:32:00Z", "1979-05-27", "07:32:00", "{a = {b = [1, {c = 2}]}}", "[[1], [[2]]]"),
        *("[" * 300 + "]" * 300, "9" * 4000, "9" * 5000, "0x" + "f" * 20_000, "'" * 6, '"\\ud800"', '"\\U0010ffff"'),
    )
)
_toml_values = _LITERALS | _ODD | texts.map(json.dumps)
_KEYS = st.sampled_from(
    (*fields.names(), "name", "arguments", "data_hash", "strategie", "a.b", "size.x", ".".join("a" * 1200), '""')
)
_TABLES = st.sampled_from(
    ("", "[workload]", "[matrix]", "[run]", "[[exclude]]", "[exclude]", "[workload.arguments]", "[rum]", "[[run]]")
)
_START = '[workload]\nname="digits"\n[matrix]\nstrategy=["ddp"]\n'


@st.composite
def suites(draw: st.DrawFn) -> bytes:
    """Draw the bytes of a suite file."""
    lines = [draw(st.sampled_from(("", _START, _START + "[run]\n")))]
    for _ in range(draw(st.integers(0, 4))):
        lines.append(draw(_TABLES))
        lines += [f"{draw(_KEYS)} = {draw(_toml_values)}" for _ in range(draw(st.integers(0, 3)))]
    text = draw(st.just("\n".join(lines)) | edited(st.just("\n".join(lines))))
    return text.encode("utf-8", "surrogatepass")


suite_files = suites() | st.binary(max_size=60) | texts.map(lambda text: text.encode("utf-8", "surrogatepass"))


# ---- records

_RAW = st.sampled_from(
    (
        *(
            "9" * 5000,
            "1e999",
            "-1e999",
            "NaN",
            "Infinity",
            "-0",
            "1E400",
            "0.1e-400",
            '"\\ud800"',
            '"\\u0000"',
            "[" * 5000,
        ),
        *("[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000, "tru", "'a'", "", "18446744073709551616", "[1,]"),
        *(
            '"' + "é" * 100 + '"',
            '{"a":1,"a":2}',
            "// x",
            "null",
            "{}",
            "[]",
            '""',
            "-1",
            "0.5",
            "true",
            '[null,"x",{}]',
        ),
    )
)
_raw_values = _RAW | texts.map(json.dumps) | st.integers().map(str)


def _paths(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [one for key, child in inside for one in _paths(child, (*path, key))]


PATHS = _paths(json.loads(REAL_RECORD))


@st.composite
def replaced(draw: st.DrawFn) -> bytes:
    """Draw the real record with one to three values replaced, keys added or given twice."""
    document = json.loads(REAL_RECORD)
    slots = {}
    for k in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(PATHS))
        place = document
        for step in way:
            place = place[step] if isinstance(place, dict | list) and _has(place, step) else None
        if isinstance(place, dict | list) and _has(place, last):
            place[last] = f"@{k}@"
            slots[f'"@{k}@"'] = draw(_raw_values)
    extra = draw(st.sampled_from(("", '"cells":[1],', '"schema":{},', '"spec":{"workload":"os:system"},', '"é":1,')))
    text = json.dumps(document)
    for slot, raw in slots.items():
        text = text.replace(slot, raw)
    text = text[:1] + extra + text[1:] if draw(st.booleans()) else text[:-1] + f", {extra.rstrip(',') or '1'}" + "}"
    return text.encode("utf-8", "surrogatepass")


def _has(place: dict[str, object] | list[object], key: str | int) -> bool:
    return key in place if isinstance(place, dict) else isinstance(key, int) and key < len(place)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw the real record cut short, or with some bytes changed, put in or taken out."""
    data = bytearray(draw(st.just(REAL_RECORD) | replaced()))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@st.composite
def respecified(draw: st.DrawFn) -> bytes:
    """Draw a record that is right but for what it names: strategies, workloads, probes and the cells of its suite."""
    document = json.loads(REAL_RECORD)
    named = {"strategy": draw(strategy_texts), "workload": draw(strategy_texts), "probes": [draw(texts)]}
    document["spec"] |= named
    document["suite"] = draw(texts)
    document["resolved_suite"] = draw(
        st.just({"cells": [named, named]}) | st.just({"cells": [{**named, "steps": -1}]}) | st.just({"cells": 5})
    )
    return json.dumps(document).encode()


record_files = replaced() | damaged() | respecified() | st.binary(max_size=60)
