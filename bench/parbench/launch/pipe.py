"""A Pipe end carries bytes between two processes of a launch; what the bytes mean is in messages.py."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Pipe = Connection[bytes, bytes]
else:  # generic to the type checker only
    Pipe = Connection
