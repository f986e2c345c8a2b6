"""Tests of the grammar: what users write, and that nothing they write does more than parse or be refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parbench.errors import UsageError
from parbench.grammar import MAX_LENGTH, Call, Value, parse, parse_value, unparse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ddp", Call("ddp")),
        ("ddp()", Call("ddp")),
        ("  ddp ( ) ", Call("ddp")),
        ("1f1b", Call("1f1b")),
        ("topk(0.01)", Call("topk", (0.01,))),
        ("topk(ratio=0.01)", Call("topk", (), {"ratio": 0.01})),
        ("pipeline(schedule=1f1b, microbatches=8)", Call("pipeline", (), {"schedule": "1f1b", "microbatches": 8})),
        ("p(eager-1f1b,)", Call("p", ("eager-1f1b",))),
        ("p(True, false, None, inf, -inf)", Call("p", (True, False, None, math.inf, -math.inf))),
        ("p(1, -2, +3, 1e-3, .5, 2.)", Call("p", (1, -2, 3, 1e-3, 0.5, 2.0))),
        (r"""p('a b', "c\n\x41\u00e9\"")""", Call("p", ("a b", 'c\nAé"'))),
        ("p([1, [a]], x=[])", Call("p", ((1, ("a",)),), {"x": ()})),
        (
            "replicated(fusion=buckets(mb=25), compressor=topk(ratio=0.01), collective=ring)",
            Call(
                "replicated",
                (),
                {
                    "fusion": Call("buckets", (), {"mb": 25}),
                    "compressor": Call("topk", (), {"ratio": 0.01}),
                    "collective": "ring",
                },
            ),
        ),
    ],
)
def test_parse_reads_what_users_write(text: str, expected: Call) -> None:
    assert parse(text) == expected
    assert parse(unparse(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "../../x",
        "os:system",
        "http://example.org/x.py",
        "a b",
        "5",
        "True",
        "'ddp'",
        "ddp(",
        "ddp)",
        "ddp(a=1, 2)",
        "ddp(a=1, a=2)",
        "ddp(,)",
        "ddp(1 2)",
        "ddp('a)",
        r"ddp('\q')",
        r"ddp('\x4')",
        "ddp([1)",
        "ddp((1, 2))",
        "ddp(1e309)",
        "ddp(a=)",
        "ddp(-.5=1)",
        "ddp\x00",
        "ddp(__import__('os').system('true'))",
        "a(" * 40 + ")" * 40,
        "[" * 5000,
        "a" * (MAX_LENGTH + 1),
    ],
)
def test_parse_refuses_what_it_cannot_read(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


def test_error_points_at_the_place() -> None:
    with pytest.raises(UsageError) as caught:
        parse("ddp(a=1, 2)")
    first, shown, pointer = str(caught.value).split("\n")
    assert "character 10" in first
    assert shown[pointer.index("^")] == "2"


def test_error_shows_no_control_characters() -> None:
    with pytest.raises(UsageError) as caught:
        parse("\x1b]0;owned\x07")
    assert "\x1b" not in str(caught.value)


def test_unparse_is_one_spelling_for_equal_calls() -> None:
    spellings = ["p(1, b=2, a='x')", "p( 1 ,a=x,b=2 )", 'p(1,a="x",b=2,)']
    assert {unparse(parse(text)) for text in spellings} == {"p(1, a=x, b=2)"}


@given(st.text(alphabet="ab1.-_()[]=,'\"\\ \t\n\x1b:/eé", max_size=60) | st.text(max_size=60))
def test_any_text_is_a_call_or_refused(text: str) -> None:
    try:
        call = parse(text)
    except UsageError:
        return
    assert parse(unparse(call)) == call


_NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
_LEAVES: st.SearchStrategy[Value] = (
    st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none() | st.text(max_size=20)
)
_VALUES: st.SearchStrategy[Value] = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.builds(Call, _NAMES, st.lists(inner, max_size=2).map(tuple), st.dictionaries(_NAMES, inner, max_size=2))
    ),
    max_leaves=6,
)


@given(_VALUES)
def test_every_value_survives_writing_and_reading(value: Value) -> None:
    assert parse(unparse(Call("p", (value,)))).args == (value,)


def test_a_whole_number_of_hundreds_of_digits_is_read_and_no_traceback() -> None:
    assert parse(f"p({'9' * 400})").args == (10**400 - 1,)
    assert parse_value("-" + "9" * 4000) == -(10**4000) + 1


def test_parse_value_reads_lists() -> None:
    assert parse_value("[ddp, topk(ratio=1)]") == ("ddp", Call("topk", (), {"ratio": 1}))
