"""A calibration is what collectives cost on one link of one machine, by size, and how far the fit errs.

Calibration.load(path).time_s("all_reduce", ranks=4, nbytes=25_000_000, algorithm="ring")
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import msgspec

from parbench.errors import StoreError, UnreadableError, UsageError
from parbench.filesystem import Filesystem, publish_file
from parbench.network.fit import Piece, Point, interpolated_s, piecewise_s
from parbench.record import Schema

SCHEMA = Schema(name="parbench.network.calibration", major=1, minor=0)
How = Literal["measured", "interpolated", "piecewise", "alpha-beta"]
LOOPBACK = "loopback"
FOLDER = "network"
_MAX_BYTES = 64 * 2**20


class HeldOut(msgspec.Struct, frozen=True, kw_only=True):
    """A size that nothing was fitted to: its time, and how far each way of telling it errs, as fractions of it."""

    bytes: int
    median_s: float
    alpha_beta: float
    piecewise: float
    interpolated: float


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One collective of one algorithm at one number of ranks.

    Attributes:
        alpha_s: start-up cost, of the smallest messages back to back.
        beta_s_per_byte: cost per byte of the whole buffer of one rank, of the largest messages.
        pieces: lines that hold from a size on; one where alpha and beta suffice.
        trend: why there are several, "" if there is one.
        points: every measured size, held-out ones included.
        held_out: what the fit says of the sizes it has not seen.
    """

    op: str
    algorithm: str
    ranks: int
    dtype: str
    alpha_s: float
    beta_s_per_byte: float
    pieces: tuple[Piece, ...]
    trend: str
    points: tuple[Point, ...]
    held_out: tuple[HeldOut, ...]

    def time_s(self, nbytes: int, how: How = "interpolated") -> float:
        """Return the time of a buffer of `nbytes`.

        Raises:
            UsageError: `how` is "measured" and this size was not.
        """
        if how not in get_args(How) or nbytes < 0:
            raise UsageError(f"time of {nbytes} bytes, {how!r}: give a size, and one of {', '.join(get_args(How))}")
        if how == "alpha-beta":
            return self.alpha_s + self.beta_s_per_byte * nbytes
        if how == "piecewise":
            return piecewise_s(self.pieces, nbytes)
        if how == "interpolated":
            return interpolated_s(self.points, nbytes, self.beta_s_per_byte)
        found = [point.median_s for point in self.points if point.bytes == nbytes]
        if not found:
            near = sorted(point.bytes for point in self.points)
            raise UsageError(f"{self.op} of {nbytes} bytes was not measured; measured are {', '.join(map(str, near))}")
        return found[0]

    def error(self, how: Literal["alpha_beta", "piecewise", "interpolated"] = "alpha_beta") -> float | None:
        """Return the largest error on held-out sizes, as a fraction; None where nothing was held out."""
        return max((abs(getattr(one, how)) for one in self.held_out), default=None)


class Reducing(msgspec.Struct, frozen=True, kw_only=True):
    """What adding costs: gamma seconds per byte added, or why it cannot be told."""

    algorithm: str
    ranks: int
    gamma_s_per_byte: float | None
    reason: str = ""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """What collectives cost on one link of one machine.

    Attributes:
        fingerprint: of the machine's hardware class, as in records.
        software: of what can change results, as in records.
        link: the network's canonical text; "loopback" where links are this machine's own.
        chosen: how the link was made, with reasons.
        measured_at: UTC, a label.
    """

    fingerprint: str
    software: str
    link: str
    backend: str
    device: str
    measured_at: str
    curves: tuple[Curve, ...]
    reducing: tuple[Reducing, ...] = ()
    chosen: dict[str, str] = {}
    schema: Schema = SCHEMA

    def curve(self, op: str, ranks: int, algorithm: str = "native") -> Curve:
        """Return the curve of a collective.

        Raises:
            UsageError: it was not calibrated.
        """
        for one in self.curves:
            if (one.op, one.ranks, one.algorithm) == (op, ranks, algorithm):
                return one
        known = ", ".join(f"{one.op} ({one.algorithm}, {one.ranks} ranks)" for one in self.curves)
        raise UsageError(f"{op} ({algorithm}, {ranks} ranks) is not calibrated on {self.link}; known: {known}")

    def time_s(
        self, op: str, *, ranks: int, nbytes: int, algorithm: str = "native", how: How = "interpolated"
    ) -> float:
        """Return the time of one collective; see `Curve.time_s`."""
        return self.curve(op, ranks, algorithm).time_s(nbytes, how)

    def path(self, out: Path) -> Path:
        """Return where it is stored under the folder results go to."""
        return path_of(out, self.fingerprint, self.link, self.backend, self.device)

    def store(self, out: Path, fs: Filesystem | None = None) -> Path:
        """Write it where `load_for` finds it, in place of an older one of the same machine and link.

        Raises:
            StoreError: it could not be written; an older one is as it was.
        """
        path = self.path(out)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            publish_file(fs or Filesystem(), path, msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        except OSError as error:
            raise StoreError(f"the calibration cannot be stored as {path}: {error.strerror}; use -o DIR") from error
        return path

    @staticmethod
    def load(path: Path) -> Calibration:
        """Read a calibration; nothing in it is imported, unpickled or evaluated.

        Raises:
            UnreadableError: it is missing, truncated, foreign, too large or newer.
        """
        data = _read(path)
        try:
            schema = msgspec.json.decode(data, type=_Headed).schema
            if schema is None or schema.name != SCHEMA.name:
                raise UnreadableError(f"{path}: not a calibration of parbench")
            if schema.major > SCHEMA.major:
                this = f"this is {SCHEMA.major}.{SCHEMA.minor}"
                raise UnreadableError(
                    f"{path}: written by a newer version ({schema.major}.{schema.minor}); {this}: upgrade"
                )
            found = msgspec.json.decode(data, type=Calibration)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise UnreadableError(f"{path}: not a whole calibration: {error}") from error
        if not all(one.points and one.pieces and _finite(one) for one in found.curves):
            raise UnreadableError(f"{path}: a curve without points, or with numbers that are no times")
        return found

    @staticmethod
    def load_for(out: Path, fingerprint: str, link: str, backend: str = "gloo", device: str = "cpu") -> Calibration:
        """Read the calibration of a machine and a link from the folder results go to.

        Raises:
            UnreadableError: there is none, or it cannot be read.
        """
        return Calibration.load(path_of(out, fingerprint, link, backend, device))


class _Headed(msgspec.Struct, frozen=True):
    schema: Schema | None = None


def path_of(out: Path, fingerprint: str, link: str, backend: str, device: str) -> Path:
    """Return where the calibration of a machine and a link is stored under the folder results go to."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", link).strip("-.")[:40] or "link"
    digest = hashlib.sha256(f"{link}\n{backend}\n{device}".encode()).hexdigest()[:8]
    return out / FOLDER / re.sub(r"[^A-Za-z0-9]", "-", fingerprint)[:64] / f"{name}-{digest}.json"


def stored(out: Path) -> Iterator[tuple[Path, Calibration | UnreadableError]]:
    """Yield every calibration under the folder results go to, in order of name, or why one cannot be read."""
    for path in sorted((out / FOLDER).glob("*/*.json")):
        if path.name.startswith("."):
            continue
        try:
            yield path, Calibration.load(path)
        except UnreadableError as error:
            yield path, error


def _read(path: Path) -> bytes:
    try:
        # Opening a named pipe would wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise UnreadableError(f"{path}: not a regular file")
            data = stream.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UnreadableError(f"{path}: cannot be read: {why}; parbench network calibrate makes one") from error
    if len(data) > _MAX_BYTES:
        raise UnreadableError(f"{path}: larger than {_MAX_BYTES // 2**20} MiB, so no calibration")
    return data


def _finite(curve: Curve) -> bool:
    times = [curve.alpha_s, curve.beta_s_per_byte, *(point.median_s for point in curve.points)]
    return all(math.isfinite(value) and value >= 0 for value in times)
