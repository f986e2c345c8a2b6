"""The filesystem is the few system calls that storing needs, in an order that leaves old or new, never half."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

logger = logging.getLogger(__name__)

PARTIAL = ".partial-"


class Filesystem:
    """One method per system call, so that a test can make the n-th one fail."""

    def mkdir(self, path: Path) -> None:
        """Make a folder that must not exist."""
        path.mkdir()

    def create(self, path: Path) -> int:
        """Open a file that must not exist, through no symbolic link, and return its descriptor."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o644)

    def write(self, handle: int, data: memoryview) -> int:
        """Write some of `data` and return how many bytes."""
        return os.write(handle, data)

    def sync(self, handle: int) -> None:
        """Wait until the disk has it."""
        os.fsync(handle)

    def close(self, handle: int) -> None:
        """Close a descriptor."""
        os.close(handle)

    def open_folder(self, path: Path) -> int:
        """Open a folder, to sync it."""
        return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))

    def rename(self, old: Path, new: Path) -> None:
        """Give a folder its final name; fails where a file or a folder with content has it."""
        old.rename(new)

    def replace(self, old: Path, new: Path) -> None:
        """Give a file its final name, in place of the file that had it."""
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()


def publish_folder(fs: Filesystem, final: Path, contents: Mapping[str, Iterable[bytes]]) -> None:
    """Make the folder `final` appear with all of its files or not at all.

    Everything is written to a sibling with a temporary name, which is then renamed: a rename within a folder is atomic,
    and what was synced before it is whole after a power cut. Whatever fails, nothing of it is left.

    Args:
        fs: the system calls.
        final: must not exist; its parent must.
        contents: path in the folder, "/" between parts -> pieces of the file.

    Raises:
        OSError: something failed; nothing of `final` is left.
    """
    if final.exists() or final.is_symlink():
        raise FileExistsError(17, "a run of this name is already stored", str(final))
    partial = final.parent / partial_name(final.name)
    now_at = partial
    try:
        fs.mkdir(partial)
        folders = sorted({parent for name in contents for parent in Path(name).parents if parent != Path()})
        for folder in folders:
            fs.mkdir(partial / folder)
        for name, pieces in contents.items():
            _write_file(fs, partial / name, pieces)
        for folder in (*reversed(folders), Path()):
            sync_folder(fs, partial / folder)
        fs.rename(partial, final)
        now_at = final
        sync_folder(fs, final.parent)
    except BaseException:
        if now_at == final:
            # Out of the readers' sight first: removing takes many calls.
            final.rename(partial)
        shutil.rmtree(partial, ignore_errors=True)
        raise


def publish_file(fs: Filesystem, final: Path, data: bytes) -> None:
    """Make the file `final` hold `data`; readers see the old file or the new one.

    Raises:
        OSError: something failed; the old file is as it was, or, where only the last sync failed, the new one is there
            but may not survive a power cut.
    """
    partial = final.parent / partial_name(final.name)
    try:
        _write_file(fs, partial, [data])
        fs.replace(partial, final)
        sync_folder(fs, final.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def probe_writing(fs: Filesystem, folder: Path) -> None:
    """Write, sync and remove a small file in `folder`.

    Raises:
        OSError: that is not possible there.
    """
    partial = folder / partial_name(f"probe-{os.urandom(4).hex()}")
    try:
        _write_file(fs, partial, [b"parbench checks that it can write here\n"])
        fs.unlink(partial)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def sync_folder(fs: Filesystem, folder: Path) -> None:
    """Make the names in `folder` survive a power cut."""
    handle = fs.open_folder(folder)
    try:
        fs.sync(handle)
    finally:
        fs.close(handle)


def partial_name(name: str) -> str:
    """Return the temporary name under which this process builds `name`; readers ignore it."""
    return f"{PARTIAL}{process_space()}-{os.getpid()}-{name}"


def sweep(folder: Path) -> None:
    """Remove what processes of this host that are gone left half written in `folder`; failing to is no fault."""
    ours = re.compile(rf"{re.escape(PARTIAL)}{process_space()}-(\d{{1,10}})-.*")
    try:
        entries = list(folder.iterdir())
    except OSError as error:
        logger.debug("cannot list %s: %s", folder, error)
        return
    for entry in entries:
        found = ours.fullmatch(entry.name)
        if found is None or _alive(int(found[1])):
            continue
        try:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        except OSError as error:
            logger.debug("cannot remove %s: %s", entry, error)


def _write_file(fs: Filesystem, path: Path, pieces: Iterable[bytes]) -> None:
    handle = fs.create(path)
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[fs.write(handle, rest) :]
        fs.sync(handle)
    except BaseException:
        os.close(handle)
        raise
    # Some filesystems report a full disk only here.
    fs.close(handle)


def process_space() -> str:
    """Return 8 digits for this host and its process ids: containers on one disk count their processes apart."""
    namespace = Path("/proc/self/ns/pid")
    counted = str(namespace.readlink()) if namespace.is_symlink() else ""
    return hashlib.sha256(f"{socket.gethostname()} {counted}".encode()).hexdigest()[:8]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
