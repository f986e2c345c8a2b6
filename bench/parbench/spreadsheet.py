"""A spreadsheet takes some texts for formulas: a text that begins like one gets an apostrophe in front."""

from __future__ import annotations

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def harmless(value: object) -> object:
    """Return `value` as it is; a text that a spreadsheet would carry out, with an apostrophe before it (OWASP)."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value
