"""A Guard watches the interpreter while parbench reads hostile input: nothing is run, written or imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Audit events (docs.python.org/3/library/audit_events.html) of which reading data causes none.
FORBIDDEN = (
    "os.system",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.putenv",
    "os.kill",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.symlink",
    "shutil.",
    "subprocess.",
    "socket.",
    "pickle.",
    "marshal.",
    "ctypes.",
    "code.__new__",
    "import",
)


class Guard:
    """Notes forbidden events; a hook cannot be taken out again, so it looks at `_watching` first."""

    def __init__(self) -> None:
        self._watching = False
        self._seen: list[str] = []
        # Text that may be evaluated: annotations in the source of constructors, which a user's text is never part of.
        self.annotations: set[str] = set()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._watching:
            return
        if event == "compile":
            source = arguments[0].decode() if isinstance(arguments[0], bytes) else str(arguments[0])
            if source not in self.annotations:
                self._seen.append(f"compile {source[:200]!r}")
        elif event == "open":
            if isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
                self._seen.append(f"open {arguments[0]!r} to write")
        elif event.startswith(FORBIDDEN):
            self._seen.append(f"{event} {arguments!r:.200}")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what is done inside; it must run nothing, write nothing and import nothing."""
        modules = set(sys.modules)
        self._seen.clear()
        self._watching = True
        try:
            yield
        finally:
            self._watching = False
        assert not self._seen, self._seen
        new = set(sys.modules) - modules
        assert not new, f"imported {sorted(new)}"


GUARD = Guard()
