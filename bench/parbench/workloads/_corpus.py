"""Text as characters: a fixed vocabulary of 97 ids, CPython's own documentation, and the user's files.

N characters.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from parbench.errors import MissingError, UsageError

# Printable ASCII and the line break; every other character is the one replacement.
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
REPLACEMENT = 0
VOCABULARY = 1 + len(CHARACTERS)


def encode(text: str) -> Tensor:
    """Return the id of every character: ids_N, uint8, from 0 (the replacement) to 96."""
    ids_of_codes = np.full(129, REPLACEMENT, dtype=np.uint8)
    for k, character in enumerate(CHARACTERS):
        ids_of_codes[ord(character)] = 1 + k
    codes_N = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    return torch.from_numpy(ids_of_codes[np.minimum(codes_N, 128)])


def python_docs() -> bytes:
    """Return the text behind Python's `help()`: UTF-8, all topics sorted by name.

    Raises:
        MissingError: this Python was packaged without it.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise MissingError("this Python has no pydoc_data; give a file of your own: text(path='FILE')") from error
    return "\n".join(text for _, text in sorted(topics.items())).encode()


def read_file(path: str) -> bytes:
    """Return the bytes of a user's file.

    Raises:
        UsageError: there is no such file, or it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path!r}: {why}; give the path of a UTF-8 text file") from error


def decode(data: bytes, name: str) -> str:
    """Return UTF-8 bytes as text, with a byte order mark left out and every line break as one character.

    Raises:
        UsageError: the bytes are not UTF-8.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is not UTF-8 text (byte {error.start} is 0x{data[error.start]:02x}); "
            f"convert it, such as with: iconv -f latin1 -t utf-8"
        ) from error
    return text.replace("\r\n", "\n")


def read(path: str | None) -> bytes:
    """Return the bytes of a user's file, or of Python's documentation where there is no path.

    Raises:
        UsageError: the file cannot be read.
        MissingError: this Python comes without its documentation.
    """
    return python_docs() if path is None else read_file(path)


def identified(path: str | None) -> tuple[Tensor, str]:
    """Return the ids_N of a text and what messages call it.

    Raises:
        UsageError: the file cannot be read, or is not UTF-8.
        MissingError: this Python comes without its documentation.
    """
    name = "Python's documentation" if path is None else repr(path)
    return encode(decode(read(path), name)), name


def lacking(path: str | None, workload: str) -> str | None:
    """Say that Python's documentation is missing, where it is needed and left out of this Python."""
    if path is not None or importlib.util.find_spec("pydoc_data"):
        return None
    return f"this Python was packaged without its documentation (pydoc_data); give a file: {workload}(path='FILE')"
