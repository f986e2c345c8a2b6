"""Files that `parbench network` writes: whether they can be is known before anything is measured."""

from __future__ import annotations

from pathlib import Path

from parbench.errors import StoreError
from parbench.filesystem import Filesystem, probe_writing, publish_file


def check_writable(path: Path | None) -> None:
    """Refuse a file that could not be written, before anything is measured."""
    if path is not None:
        if path.is_dir():
            raise StoreError(f"{path} is a folder; give the name of a file")
        check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Refuse a folder in which nothing could be written; it is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe_writing(Filesystem(), folder)
    except OSError as error:
        raise StoreError(f"{folder} cannot be written to: {error.strerror}; give another place") from error


def write(path: Path | None, data: bytes) -> None:
    """Write a file whole or not at all, if one was asked for."""
    if path is None:
        return
    try:
        publish_file(Filesystem(), path, data)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}; give another place") from error
