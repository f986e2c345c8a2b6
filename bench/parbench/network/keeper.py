"""A Keeper is a process that holds a private world of network and mount namespaces, and takes it along when it ends.

Everything a network consists of lives in that world: the kernel removes it all once the keeper, and the ranks inside,
have ended, whatever ended them. The keeper reads a pipe that only its launcher holds, and ends with it, kill -9 too.

Named namespaces hang on the keeper's own mount namespace, so nobody else sees them: /proc/KEEPER/root/run/netns/NAME.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, final

import psutil

from parbench.errors import MissingError
from parbench.network.plan import Command

Way = Literal["root", "user"]

# Whose keeper a process is: "pb-RUN-PID STARTED", the launcher's process id and when it began.
OWNER_VARIABLE = "PARBENCH_NETWORK"
PROGRAM = "cat"
_FLAGS: Mapping[Way, tuple[str, ...]] = MappingProxyType(
    {"root": ("--net", "--mount"), "user": ("--user", "--map-root-user", "--net", "--mount")}
)
_NEEDED = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
_END_S, _COMMAND_S = 5.0, 30.0


@final
class Keeper:
    """A private world; use `start`."""

    def __init__(self, process: subprocess.Popen[bytes], way: Way) -> None:
        self._process = process
        self.way = way
        self._folder = Path(os.path.realpath("/var/run"))  # where ip keeps the names of namespaces

    @staticmethod
    def start(tag: str) -> Keeper:
        """Start a keeper with an empty world.

        Args:
            tag: whose it is, from `parbench.network.plan.tag_of`.

        Raises:
            MissingError: this user may not make namespaces here, or a program is missing.
        """
        if missing := [name for name in _NEEDED if _found(name) is None]:
            packages = sorted({_NEEDED[name] for name in missing})
            raise MissingError(f"shaped links need {', '.join(missing)}; install {' and '.join(packages)}")
        refusals = []
        for way in _ways():
            process = _spawn(way, tag)
            if _answers(process):
                keeper = Keeper(process, way)
                try:
                    # Over the system's own names: they are nobody's here, and a world without root may not write there.
                    keeper.run([Command(argv=("mount", "-t", "tmpfs", "tmpfs", str(keeper._folder)))])
                except BaseException:
                    keeper.close()
                    raise
                return keeper
            refusals.append(_last_words(process))
        raise MissingError(_refused(refusals))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def user_namespace(self) -> str:
        """Path of its user namespace, which those who enter its world enter first; "" where they need not."""
        return f"/proc/{self.pid}/ns/user" if self.way == "user" else ""

    def namespace(self, name: str) -> str:
        """Return the path of a named network namespace of its world."""
        return f"/proc/{self.pid}/root{self._folder}/netns/{name}"

    def inside(self, name: str) -> tuple[str, ...]:
        """Return what stands before a program's arguments to run it in a named network namespace."""
        return ("nsenter", *self._user(), f"--net={self.namespace(name)}")

    def run(self, commands: Sequence[Command]) -> None:
        """Run commands in its world, all at the same time.

        Raises:
            MissingError: one failed; the kernel lacks what it asks for, or this user a right.
        """
        prefix = ("nsenter", *self._user(), f"--target={self.pid}", "--net", "--mount")
        running = [
            subprocess.Popen(
                (*prefix, *command.argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_environment(),
            )
            for command in commands
        ]
        failed = []
        for command, process in zip(commands, running, strict=True):
            lines = "".join(f"{line}\n" for line in command.lines)
            try:
                _, errors = process.communicate(lines.encode(), timeout=_COMMAND_S)
            except BaseException:
                for one in running:
                    one.kill()
                raise
            if process.returncode != 0:
                told = " ".join(errors.decode(errors="replace").split()) or f"exit code {process.returncode}"
                failed.append(f"`{' '.join(command.argv)}` failed: {told}")
        if failed:
            raise MissingError(
                f"links cannot be shaped here: {failed[0]}; the kernel must have veth, bridge and sch_tbf, "
                "and sch_netem for delay= and loss="
            )

    def close(self) -> None:
        """End it; again does nothing."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _user(self) -> tuple[str, ...]:
        return (f"--user={self.user_namespace}", "--preserve-credentials") if self.way == "user" else ()


def refusal() -> str | None:
    """Return why this user cannot have shaped links here and what to ask for, or None."""
    try:
        Keeper.start("pb-test-0").close()
    except MissingError as error:
        return str(error)
    return None


def _ways() -> tuple[Way, ...]:
    return ("root", "user") if os.geteuid() == 0 else ("user",)


def _environment() -> dict[str, str]:
    # ip and tc live where an ordinary user's PATH does not lead; both speak plain English only in this locale.
    path = os.environ.get("PATH", os.defpath)
    return {**os.environ, "PATH": f"{path}:/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C"}


def _found(program: str) -> str | None:
    return shutil.which(program, path=_environment()["PATH"])


def _spawn(way: Way, tag: str) -> subprocess.Popen[bytes]:
    owner = f"{tag} {psutil.Process().create_time():.2f}"
    return subprocess.Popen(
        ("unshare", *_FLAGS[way], "--", PROGRAM),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**_environment(), OWNER_VARIABLE: owner},
        start_new_session=True,  # Ctrl-C in a terminal is for the launcher, which decides when the world ends
    )


def _answers(process: subprocess.Popen[bytes]) -> bool:
    """Wait until the keeper is in its world: it then gives back what it is given."""
    if process.stdin is None or process.stdout is None:
        return False
    try:
        process.stdin.write(b"\n")
        process.stdin.flush()
    except OSError:
        return False
    return process.stdout.read(1) == b"\n"


def _last_words(process: subprocess.Popen[bytes]) -> str:
    _, errors = process.communicate(timeout=_END_S)
    return " ".join(errors.decode(errors="replace").split()) or f"unshare ended with exit code {process.returncode}"


def _refused(refusals: Sequence[str]) -> str:
    return (
        f"shaped links need namespaces, which this user may not make here ({'; '.join(refusals)}). Ask an "
        "administrator for one of: root; CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --cap-add SYS_ADMIN "
        "--cap-add NET_ADMIN); user namespaces (sysctl user.max_user_namespaces=10000, "
        "kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0). "
        "Everything else of parbench works without"
    )
