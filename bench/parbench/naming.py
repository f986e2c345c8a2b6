"""Naming turns what people call things into file names that stay where they belong, and gives every run its own."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import UTC, datetime

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,98}[A-Za-z0-9_-]|[A-Za-z0-9]")
# Windows opens a device for these, whatever the extension.
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_LONGEST_SLUG = 80


def safe_name(text: str) -> str:
    """Return a file name for `text`: itself where that is harmless, else what is left of it and a hash of all of it.

    The result is one path component of at most 100 ASCII letters, digits, ".", "_" and "-" on every system: no
    separator, no leading or trailing dot, no device name. Different texts keep different names: 32 bits
    of hash tell apart those that look alike.
    """
    if _PLAIN.fullmatch(text) and not _RESERVED.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    slug = re.sub(r"[^A-Za-z0-9_]+", "-", text[: 4 * _LONGEST_SLUG]).strip("-_")[:_LONGEST_SLUG]
    return f"{slug or 'unnamed'}-{digest}"


def new_run_id() -> str:
    """Return a name no other run has: UTC time, as a label only, and 8 random hexadecimal digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
