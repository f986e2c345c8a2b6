"""RAPL: the energy of this host's CPU packages, from the counters that Linux shows under its power caps.

Domains named "package-K" are whole packages; their parts (cores, memory controller) would be counted twice. Linux lets
only root read them since 5.10 (CVE-2020-8694) unless told otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import final

POWERCAP = Path("/sys/class/powercap")


@final
class Package:
    """One package: its counter, which starts again from 0 when it is full.

    Args:
        folder: of the domain.
    """

    def __init__(self, folder: Path) -> None:
        self.name = (folder / "name").read_text().strip()
        self._counter = folder / "energy_uj"
        self._full_j = int((folder / "max_energy_range_uj").read_text()) / 1e6
        self._last_j: float | None = None
        self._turns = 0

    def read(self) -> tuple[float | None, float | None]:
        """Return no power, and the energy in J since the counter's first start."""
        try:
            energy_j = int(self._counter.read_text()) / 1e6
        except (OSError, ValueError):
            return None, None
        if self._last_j is not None and energy_j < self._last_j:
            self._turns += 1
        self._last_j = energy_j
        return None, energy_j + self._turns * self._full_j


def packages(root: Path = POWERCAP) -> list[Package] | str:
    """Return the packages of this host whose energy can be read, or a sentence saying why there are none."""
    try:
        folders = sorted(path for path in root.iterdir() if path.name.startswith("intel-rapl:"))
    except OSError:
        return "this machine has no RAPL counters of CPU energy (virtual machines do not)"
    found = []
    for folder in folders:
        try:
            package = Package(folder)
            if not package.name.startswith("package"):
                continue
            (folder / "energy_uj").read_text()
        except PermissionError:
            return "RAPL counters of CPU energy can be read by root only"
        except (OSError, ValueError):
            continue
        found.append(package)
    return found or "this machine has no RAPL counters of CPU energy (virtual machines do not)"
