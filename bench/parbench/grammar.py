"""A Call is a name with arguments, such as `topk(ratio=0.01)`, as users write strategies: parsed, never evaluated.

call  = word [ "(" [ value | word "=" value ] { "," ... } ")" ]
value = number | "inf" | "True" | "False" | "None" | quoted string | word | call with parentheses | "[" values "]"
word  = [A-Za-z0-9_.-]+ that is no number
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from parbench.errors import UsageError

Value: TypeAlias = "int | float | bool | str | Call | tuple[Value, ...] | None"

MAX_LENGTH = 4096
MAX_DEPTH = 32

_WORD = re.compile(r"[A-Za-z0-9_.-]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.-])")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_KEYWORD = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t\r\n]*=")
_SPACE = re.compile(r"[ \t\r\n]*")
_WORDS: Mapping[str, bool | float | None] = {
    "True": True,
    "true": True,
    "False": False,
    "false": False,
    "None": None,
    "inf": math.inf,
    "-inf": -math.inf,
}
_ESCAPES: Mapping[str, str] = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
_HEX_ESCAPES: Mapping[str, int] = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class Call:
    """A name with its arguments; `ddp` and `ddp()` are the same Call.

    Attributes:
        name: a bare word.
        args: positional arguments, in the constructor's order.
        kwargs: arguments by name.
    """

    name: str
    args: tuple[Value, ...] = ()
    kwargs: Mapping[str, Value] = field(default_factory=dict)


def parse(text: str) -> Call:
    """Parse a strategy or workload as the user wrote it.

    Raises:
        UsageError: `text` is not a name with arguments; the message points at the place.
    """
    parser = _Parser(text)
    call = parser.top()
    parser.end()
    return call


def parse_value(text: str) -> Value:
    """Parse one value, such as the right side of `--set KEY=VALUE`.

    Raises:
        UsageError: `text` is not a value.
    """
    parser = _Parser(text)
    value = parser.value(0)
    parser.end()
    return value


def unparse(call: Call) -> str:
    """Return the canonical spelling of `call`: equal calls give equal text.

    `parse` gives the call back, where it takes so long a text: a blank follows each comma, so it may be longer than
    what the user wrote.
    """
    return _spell_call(call) if call.args or call.kwargs else call.name


def _spell_call(call: Call) -> str:
    named = (f"{name}={_spell(value)}" for name, value in sorted(call.kwargs.items()))
    return f"{call.name}({', '.join([*map(_spell, call.args), *named])})"


def _spell(value: Value) -> str:
    if isinstance(value, Call):
        return _spell_call(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_spell, value))}]"
    if isinstance(value, str):
        return value if _is_bare(value) else _quoted(value)
    return str(value)


def _is_bare(text: str) -> bool:
    return bool(_WORD.fullmatch(text)) and not _NUMBER.fullmatch(text) and text not in _WORDS


def _quoted(text: str) -> str:
    return "'" + "".join(map(_escaped, text)) + "'"


def _escaped(char: str) -> str:
    if char in "\\'":
        return "\\" + char
    if char.isprintable():
        return char
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\U{ord(char):08x}"


class _Parser:
    """Recursive descent over one text; `_at` is where it reads next."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        if len(text) > MAX_LENGTH:
            raise UsageError(f"a name with arguments may have {MAX_LENGTH} characters, given {len(text)}; shorten it")

    def top(self) -> Call:
        self._skip()
        start = self._at
        name = self._name(start)
        self._skip()
        if self._peek() == "(":
            return self._arguments(name, 1)
        return Call(name)

    def end(self) -> None:
        self._skip()
        if self._at < len(self._text):
            self._fail("expected the end")

    def value(self, depth: int) -> Value:
        if depth > MAX_DEPTH:
            self._fail(f"nested deeper than {MAX_DEPTH}")
        self._skip()
        char = self._peek()
        if char in ("'", '"'):
            return self._string(char)
        if char == "[":
            return self._list(depth)
        number = _NUMBER.match(self._text, self._at)
        if number:
            return self._number(number.group())
        return self._word_or_call(depth)

    def _word_or_call(self, depth: int) -> Value:
        start = self._at
        match = _WORD.match(self._text, start)
        if not match:
            self._fail("expected a number, a word, a quoted string or a list")
        self._at = match.end()
        word = match.group()
        self._skip()
        if self._peek() == "(":
            return self._arguments(self._name(start), depth + 1)
        return _WORDS.get(word, word)

    def _name(self, start: int) -> str:
        self._at = start
        match = _WORD.match(self._text, start)
        if not match:
            self._fail("expected a name made of letters, digits, '_', '.' and '-'")
        if not _is_bare(match.group()):
            self._fail(f"a name is expected here, not the value {match.group()[:40]}")
        self._at = match.end()
        return match.group()

    def _arguments(self, name: str, depth: int) -> Call:
        args: list[Value] = []
        kwargs: dict[str, Value] = {}
        self._at += 1
        while not self._closed(")"):
            keyword = _KEYWORD.match(self._text, self._at)
            if keyword:
                if keyword.group(1) in kwargs:
                    self._fail(f"{keyword.group(1)[:40]!r} is given twice")
                self._at = keyword.end()
                kwargs[keyword.group(1)] = self.value(depth)
            elif kwargs:
                self._fail("a value without a name must stand before the named ones")
            else:
                args.append(self.value(depth))
            self._comma(")")
        return Call(name, tuple(args), kwargs)

    def _list(self, depth: int) -> tuple[Value, ...]:
        values: list[Value] = []
        self._at += 1
        while not self._closed("]"):
            values.append(self.value(depth + 1))
            self._comma("]")
        return tuple(values)

    def _closed(self, bracket: str) -> bool:
        self._skip()
        if self._peek() != bracket:
            return False
        self._at += 1
        return True

    def _comma(self, bracket: str) -> None:
        self._skip()
        if self._peek() == ",":
            self._at += 1
        elif self._peek() != bracket:
            self._fail(f"expected ',' or {bracket!r}")

    def _number(self, digits: str) -> int | float:
        number = int(digits) if _INTEGER.fullmatch(digits) else float(digits)
        if isinstance(number, float) and not math.isfinite(number):
            self._fail("this number is too large; write inf to mean infinity")
        self._at += len(digits)
        return number

    def _string(self, quote: str) -> str:
        start = self._at
        self._at += 1
        parts: list[str] = []
        while self._peek() != quote:
            if self._at >= len(self._text):
                self._at = start
                self._fail("this quote is never closed")
            parts.append(self._escape() if self._peek() == "\\" else self._peek())
            self._at += 1
        self._at += 1
        return "".join(parts)

    def _escape(self) -> str:
        """Read a backslash and what it stands for, leaving `_at` on the last character of it."""
        self._at += 1
        char = self._peek()
        if char in _ESCAPES:
            return _ESCAPES[char]
        width = _HEX_ESCAPES.get(char, 0)
        digits = self._text[self._at + 1 : self._at + 1 + width]
        if width and re.fullmatch(f"[0-9a-fA-F]{{{width}}}", digits) and int(digits, 16) <= 0x10FFFF:
            self._at += width
            return chr(int(digits, 16))
        self._fail("unknown escape; known: \\n \\t \\r \\\\ \\' \\\" \\xHH \\uHHHH")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _fail(self, problem: str) -> NoReturn:
        # A long text is shown around the place only; what would move the cursor is shown as '?'.
        first = max(0, self._at - 50)
        shown = "".join(c if c.isprintable() else "?" for c in self._text[first : self._at + 25])
        pointer = " " * (self._at - first) + "^"
        raise UsageError(f"cannot read it at character {self._at + 1}: {problem}\n  {shown}\n  {pointer}")
