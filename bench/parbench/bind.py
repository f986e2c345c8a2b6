"""Binding gives a parsed Call's arguments to a constructor, checked by name and type before it runs."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from parbench.errors import UsageError, unknown_name
from parbench.grammar import Call, Value, unparse

_WORDS: Mapping[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a string",
    Path: "a path",
    Call: "a name with arguments",
    type(None): "None",
}


class Nested(Protocol):
    """What is known of arguments that are plug-ins themselves, such as `pipeline(schedule=interleaved(v=2))`."""

    def takes(self, hint: object) -> bool:
        """Whether an argument with this annotation is a plug-in."""

    def made(self, hint: object, value: str | Call) -> object:
        """Return the plug-in that a name or call means."""

    def spelled(self, hint: object, value: str | Call) -> str:
        """Return the one spelling of all texts that mean the same."""


class _WrongTypeError(Exception):
    """The value does not fit the annotation."""


def bind(cls: type, call: Call, nested: Nested | None = None) -> dict[str, object]:
    """Return the constructor's arguments by name, as `call` gives them; plug-ins among them stay names or calls.

    Args:
        cls: whose constructor is called.
        call: the name with arguments as the user wrote them.
        nested: which annotations mean plug-ins.

    Raises:
        UsageError: an argument is unknown, missing, given twice or of the wrong type.
    """
    parameters = _parameters(cls)
    names = list(parameters)
    positional = [name for name in names if parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY]
    if len(call.args) > len(positional):
        most = f"at most {len(positional)}" if positional else "no"
        raise UsageError(
            f"{call.name} takes {most} unnamed values, given {len(call.args)}; write {usage(cls, call.name)}"
        )
    given: dict[str, Value] = dict(zip(positional, call.args, strict=False))
    for name, value in call.kwargs.items():
        if name not in parameters:
            raise unknown_name(f"argument of {call.name}", name, names, f"write {usage(cls, call.name)}")
        if name in given:
            raise UsageError(f"{call.name} is given {name} twice, by place and by name; leave one out")
        given[name] = value
    for name, parameter in parameters.items():
        if name not in given and parameter.default is inspect.Parameter.empty:
            raise UsageError(f"{call.name} needs {name}; write {usage(cls, call.name)}")
    hints = _hints(cls)
    bound: dict[str, object] = {}
    for name, value in given.items():
        plugin = nested is not None and nested.takes(hints.get(name))
        bound[name] = _converted(call.name, name, value, str | Call if plugin else hints.get(name, object))
    return bound


def canonical(cls: type, call: Call, nested: Nested | None = None) -> str:
    """Return one spelling for all that mean the same: arguments named, those equal to their default left out."""
    parameters, hints = _parameters(cls), _hints(cls)
    kept: dict[str, Value] = {}
    for name, value in bind(cls, call, nested).items():
        default: object = parameters[name].default
        if nested is not None and nested.takes(hints.get(name)) and isinstance(value, str | Call):
            value, default = nested.spelled(hints[name], value), str(default)
        if value != default:
            kept[name] = _plain(value)
    return unparse(Call(call.name, (), kept))


def arguments(cls: type) -> tuple[str, ...]:
    """Return the constructor's arguments as `name=default`, or the name alone where it must be given."""
    return tuple(
        name if parameter.default is inspect.Parameter.empty else f"{name}={parameter.default!r}"
        for name, parameter in _parameters(cls).items()
    )


def usage(cls: type, name: str) -> str:
    """Return how to write it, such as `ddp(bucket_cap_mb=25.0)`."""
    listed = ", ".join(arguments(cls))
    return f"{name}({listed})" if listed else name


def construct(cls: type, call: Call, nested: Nested | None = None) -> object:
    """Call the constructor of `cls` with the arguments of `call`.

    Raises:
        UsageError: an argument does not fit, or the constructor refuses it.
    """
    bound, hints = bind(cls, call, nested), _hints(cls)
    for name, value in bound.items():
        if nested is not None and nested.takes(hints.get(name)) and isinstance(value, str | Call):
            bound[name] = nested.made(hints[name], value)
    try:
        return cls(**bound)
    except (ValueError, OSError) as error:
        raise UsageError(f"{unparse(call)[:200]}: {error}; write {usage(cls, call.name)}") from error


def _parameters(cls: type) -> dict[str, inspect.Parameter]:
    everything = inspect.signature(cls).parameters
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: parameter for name, parameter in everything.items() if parameter.kind not in open_ended}


def _hints(cls: type) -> Mapping[str, object]:
    init: object = inspect.getattr_static(cls, "__init__")
    if not isinstance(init, types.FunctionType):
        return {}
    try:
        return typing.get_type_hints(init)
    except (NameError, TypeError):
        # An annotation that only type checkers can resolve: the constructor checks for itself.
        return {}


def _plain(value: object) -> Value:
    if value is None or isinstance(value, int | float | str | Call):
        return value
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    return str(value)


def _converted(owner: str, name: str, value: Value, hint: object) -> object:
    try:
        return _fit(value, hint)
    except _WrongTypeError:
        shown = unparse(value) if isinstance(value, Call) else repr(value)
        raise UsageError(f"{owner}: {name} must be {_words(hint)}, given {shown[:80]}; change it") from None


def _fit(value: Value, hint: object) -> object:
    origin = typing.get_origin(hint)
    choices: tuple[object, ...] = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _fit_any(value, choices)
    if origin is typing.Annotated:
        return _fit(value, choices[0])
    if origin is typing.Literal:
        return _literal(value, choices)
    if origin in (tuple, list, Sequence):
        if not isinstance(value, tuple):
            raise _WrongTypeError
        return tuple(_fit(item, choices[0] if choices else object) for item in value)
    return _fit_plain(value, hint)


def _fit_any(value: Value, choices: tuple[object, ...]) -> object:
    # An exact type first: 1 given for `float | int` stays 1.
    for choice in sorted(choices, key=lambda choice: choice is not type(value)):
        try:
            return _fit(value, choice)
        except _WrongTypeError:
            continue
    raise _WrongTypeError


def _literal(value: Value, choices: tuple[object, ...]) -> object:
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
    raise _WrongTypeError


def _fit_plain(value: Value, hint: object) -> object:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise _WrongTypeError from None
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint in _WORDS and type(value) is not hint:
        raise _WrongTypeError
    return value


def _words(hint: object) -> str:
    choices: tuple[object, ...] = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(choice) for choice in choices)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, choices))
    if origin in (tuple, list, Sequence):
        return "a list [...]"
    return _WORDS.get(hint, str(hint))
