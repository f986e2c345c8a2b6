"""A BoardMeter reads one board: power and energy, and what may explain them (limits, clocks, heat, neighbours)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar, final

from parbench.nvml import sentence
from parbench.visible import Board

T = TypeVar("T")

# Boards whose processor and GPU share a module, which is what power is told of where it cannot be told apart.
_MODULES = re.compile(r"\b(GH|GB)\d00\b|Grace")
_INSTANT, _AVERAGE, _SCOPE_GPU = 186, 185, 0  # NVML_FI_DEV_POWER_INSTANT, NVML_FI_DEV_POWER_AVERAGE
_AMPERE = 7  # from here on, nvmlDeviceGetPowerUsage averages over a second; GA100 (A100, A30) does not yet
_AVERAGED_S = 1.0
_LOOKS = 10  # of so many readings one notes clocks too
_REASONS = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
_THERMAL = ("software thermal slowdown", "hardware thermal slowdown", "hardware slowdown")


class GpuLost(RuntimeError):
    """The board has fallen off the bus: nothing on it can go on."""


@final
class BoardMeter:
    """Reads one board; which sources there are is found by trying each once.

    Attributes:
        board: which.
        field: "instant", "average" or "none".
        averaged_s: over how long each power is an average.
        scope: what the power is of.
        lost: whether the board has fallen off the bus.
        why: source -> the sentence saying why it cannot be read.
        clocks_mhz: of the multiprocessors, noted while reading.
        held_down: why they were held down, noted while reading.
    """

    def __init__(self, board: Board) -> None:
        import pynvml

        self.board = board
        self.lost = False
        self.why: dict[str, str] = {}
        self._handle: object = pynvml.nvmlDeviceGetHandleByIndex(board.index)
        scoped = self._field(_INSTANT) is not None
        self._read_power: Callable[[], float | None]
        if scoped:
            self.field, self._read_power = "instant", lambda: self._field(_INSTANT)
        elif self._usage() is not None:
            self.field, self._read_power = ("average" if self._averages() else "instant"), self._usage
        elif self._field(_AVERAGE) is not None:
            self.field, self._read_power = "average", lambda: self._field(_AVERAGE)
        else:
            self.field, self._read_power = "none", lambda: None
        self.averaged_s = _AVERAGED_S if self.field == "average" else 0.0
        module = not scoped and _MODULES.search(board.name)
        self.scope = "GPU module (CPU and GPU)" if module else "GPU board"
        self._counts = self._counter() is not None
        self._looks = 0
        self.clocks_mhz: list[int] = []
        self.held_down: dict[str, None] = {}

    def read(self) -> tuple[float | None, float | None]:
        """Return power in W and the energy counter in J; None for what cannot be read now.

        Now and then it notes the clock, and why it is held down: what it is before and after work says little.
        """
        self._looks += 1
        if self._looks % _LOOKS == _LOOKS // 2:
            self.clocks_mhz += [clock] if (clock := self.clock_mhz()) is not None else []
            self.held_down |= dict.fromkeys(self.throttled())
        return self._read_power(), self._counter() if self._counts else None

    def limit_w(self) -> float | None:
        """Return the power limit in force."""
        import pynvml

        found = self._tried("power limit", lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle))
        return None if found is None else int(found) / 1e3

    def default_limit_w(self) -> float | None:
        """Return the power limit it leaves the factory with."""
        import pynvml

        found = self._tried("default limit", lambda: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(self._handle))
        return None if found is None else int(found) / 1e3

    def clock_mhz(self) -> int | None:
        """Return the clock of the multiprocessors."""
        import pynvml

        found = self._tried("clock", lambda: pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM))
        return None if found is None else int(found)

    def most_clock_mhz(self) -> int | None:
        """Return the highest clock they can have."""
        import pynvml

        found = self._tried(
            "highest clock", lambda: pynvml.nvmlDeviceGetMaxClockInfo(self._handle, pynvml.NVML_CLOCK_SM)
        )
        return None if found is None else int(found)

    def temperature_c(self) -> int | None:
        """Return the temperature."""
        import pynvml

        kind = pynvml.NVML_TEMPERATURE_GPU
        found = self._tried("temperature", lambda: pynvml.nvmlDeviceGetTemperature(self._handle, kind))
        return None if found is None else int(found)

    def throttled(self) -> tuple[str, ...]:
        """Return why clocks are held down now; being idle and limits that a user set do not count."""
        import pynvml

        found = self._tried("clocks", lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))
        return tuple(words for bit, words in _REASONS.items() if found is not None and int(found) & bit)

    def processes(self) -> set[int] | None:
        """Return the ids of processes that compute on the board."""
        import pynvml

        found = self._tried("processes", lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        return None if found is None else {int(one.pid) for one in found}

    def used_bytes(self) -> int | None:
        """Return the memory in use on the board, by whomever."""
        import pynvml

        found = self._tried("memory", lambda: pynvml.nvmlDeviceGetMemoryInfo(self._handle))
        return None if found is None else int(found.used)

    def _counter(self) -> float | None:
        import pynvml

        found = self._tried("energy counter", lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        return None if found is None else int(found) / 1e3

    def _usage(self) -> float | None:
        import pynvml

        found = self._tried("power", lambda: pynvml.nvmlDeviceGetPowerUsage(self._handle))
        return None if found is None else int(found) / 1e3

    def _field(self, number: int) -> float | None:
        import pynvml

        def value() -> int | None:
            (one,) = pynvml.nvmlDeviceGetFieldValues(self._handle, [(number, _SCOPE_GPU)])
            return int(one.value.uiVal) if one.nvmlReturn == 0 else None

        found = self._tried("power field", value)
        return None if found is None else found / 1e3

    def _averages(self) -> bool:
        import pynvml

        found = self._tried("architecture", lambda: pynvml.nvmlDeviceGetArchitecture(self._handle))
        return found is None or (int(found) >= _AMPERE and not re.search(r"\bA(100|30)\b", self.board.name))

    def _tried(self, what: str, call: Callable[[], T]) -> T | None:
        """Return what a call gives, or None with the reason kept."""
        import pynvml

        try:
            return call()
        except pynvml.NVMLError as error:
            self.why[what] = sentence(error)
            self.lost = self.lost or isinstance(error, pynvml.NVMLError_GpuIsLost)
            return None


def held_down_by_heat(reasons: Iterable[str]) -> bool:
    """Whether clocks fall because of heat, which drifts, and not because of a constant limit of power."""
    return any(reason in _THERMAL for reason in reasons)
