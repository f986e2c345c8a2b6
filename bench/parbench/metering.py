"""Metering is one rank's part in measuring power: what it can read, and readings of a window."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from typing import final

import msgspec
import psutil
import torch

from parbench import rapl
from parbench.boardmeter import BoardMeter, GpuLost
from parbench.energy import Sample, energy_of
from parbench.nvml import Nvml
from parbench.observed import Reading
from parbench.powerplan import Place, host_here
from parbench.requirements import powercap
from parbench.sampler import Sampler
from parbench.trace_counters import power_from
from parbench.visible import Seen, seen


@final
class Metering:
    """The meters of power of the host of one rank.

    Args:
        device: where the rank computes.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._nvml: Nvml | str | None = None
        self._sampler: Sampler | None = None
        self._meters: list[BoardMeter | rapl.Package] = []
        self._before: list[Reading] = []
        self._parts: list[bool] = []

    def place(self) -> Place:
        """Return where this rank is, or why no power can be read for it."""
        if self._device.type == "cpu":
            found = rapl.packages(powercap())
            return Place(host=host_here(), reason=found if isinstance(found, str) else None)
        self._nvml = Nvml.open()
        if isinstance(self._nvml, str):
            return Place(host=host_here(), reason=self._nvml)
        one = _of_device(self._nvml, self._device)
        if isinstance(one, str):
            return Place(host=host_here(), reason=one)
        return Place(host=host_here(), board=one.board.bus_id, part=one.part)

    def powers(self) -> Sequence[tuple[str, Callable[[], float | None]]]:
        """Return what reads the power, in W, of what this rank computes on: its board, or the packages of its host."""
        return [(_name(meter), _power_of(meter)) for meter in self._of_place(self.place())]

    def start(self, places: Sequence[Place]) -> None:
        """Begin to read the boards of `places`; no places, nothing to read."""
        self._meters, self._parts = [], []
        for place in places:
            self._meters += self._of_place(place)
            self._parts += [place.part] * (len(self._meters) - len(self._parts))
        self._before = [_state(meter) for meter in self._meters]
        self._sampler = Sampler(self._meters)
        self._sampler.start()

    def stop(self, start_s: float, end_s: float, steps: int) -> tuple[Reading, ...]:
        """End, and return a reading per board of the window between two times of perf_counter.

        Raises:
            GpuLost: a board has fallen off the bus.
        """
        if self._sampler is None:
            raise RuntimeError("stop without start: call start(places) before the window")
        after = [_state(meter) for meter in self._meters]
        # What a counter shows at the window's end it shows a period later.
        series = self._sampler.stop(beyond_s=0.25 if self._meters else 0.0)
        self._sampler = None
        for meter in self._meters:
            if isinstance(meter, BoardMeter) and meter.lost:
                raise GpuLost(f"the GPU at {meter.board.bus_id} is lost: it has fallen off the bus")
        return tuple(
            _reading(meter, samples, (start_s, end_s), steps, states, part)
            for meter, samples, states, part in zip(
                self._meters, series, zip(self._before, after, strict=True), self._parts, strict=True
            )
        )

    def idle(self, places: Sequence[Place], seconds: float) -> tuple[Reading, ...]:
        """Return readings of a window in which nothing is done."""
        self.start(places)
        started_s = time.perf_counter()
        if places:
            time.sleep(seconds)
        return self.stop(started_s, time.perf_counter(), 0)

    def _of_place(self, place: Place) -> Sequence[BoardMeter | rapl.Package]:
        if place.board is None:
            found = rapl.packages(powercap())
            return [] if isinstance(found, str) else found
        if not isinstance(self._nvml, Nvml):
            return []
        return [BoardMeter(one) for one in self._nvml.boards if one.bus_id == place.board]


def _of_device(nvml: Nvml, device: torch.device) -> Seen | str:
    """Return the board behind a device: by the bus address that CUDA gives, else by what this process may see."""
    number = device.index or 0
    known = torch.cuda.get_device_properties(device)
    bus, slot, domain = (getattr(known, f"pci_{what}_id", None) for what in ("bus", "device", "domain"))
    if isinstance(bus, int) and isinstance(slot, int):
        address = f"{domain or 0:08X}:{bus:02X}:{slot:02X}.0"
        board = next((one for one in nvml.boards if one.bus_id.upper() == address), None)
        if board is not None:
            return Seen(board=board, part=bool(board.parts))
    found = seen(nvml.boards, os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))
    if isinstance(found, str):
        return found
    return found[number] if number < len(found) else f"NVML has no board that is device {number} here"


def _name(meter: BoardMeter | rapl.Package) -> str:
    return meter.name if isinstance(meter, rapl.Package) else meter.board.name


def _power_of(meter: BoardMeter | rapl.Package) -> Callable[[], float | None]:
    """Return what reads power, or the mean between two values of the energy counter where there is only that."""
    if meter.read()[0] is not None:
        return lambda: meter.read()[0]
    return power_from(lambda: meter.read()[1])


def _state(meter: BoardMeter | rapl.Package) -> Reading:
    """Return what a meter says besides power and energy."""
    if isinstance(meter, rapl.Package):
        return Reading(name=meter.name, id=meter.name, scope="CPU package")
    board, processes, temperature = meter.board, meter.processes(), meter.temperature_c()
    return Reading(
        name=board.name,
        id=hashlib.sha256(board.uuid.encode()).hexdigest()[:12],
        index=board.index,
        scope=meter.scope,
        field=meter.field,
        limit_w=meter.limit_w(),
        default_limit_w=meter.default_limit_w(),
        most_clock_mhz=meter.most_clock_mhz(),
        temperatures_c=() if temperature is None else (temperature,),
        clocks_mhz=(min(meter.clocks_mhz), max(meter.clocks_mhz)) if meter.clocks_mhz else (),
        throttled=tuple(meter.held_down),
        others=None if processes is None else len(processes - _ours()),
        used_bytes=meter.used_bytes(),
    )


def _ours() -> set[int]:
    """Return the ids of the ranks of this host: those that the same process started, and those beside them."""
    me = psutil.Process()
    try:
        parent = me.parent()
        return {me.pid, *(one.pid for one in parent.children(recursive=True))} if parent is not None else {me.pid}
    except psutil.Error:
        return {me.pid}


def _reading(
    meter: BoardMeter | rapl.Package,
    samples: Sequence[Sample],
    window: tuple[float, float],
    steps: int,
    states: tuple[Reading, Reading],
    part: bool,
) -> Reading:
    start_s, end_s = window
    averaged_s = meter.averaged_s if isinstance(meter, BoardMeter) else 0.0
    found = energy_of(samples, start_s, end_s, averaged_s=averaged_s)
    before, after = states
    why = meter.why if isinstance(meter, BoardMeter) else {}
    lacking = [f"{what}: {why[what]}" for what in ("energy counter", "power") if what in why]
    return msgspec.structs.replace(
        after,
        energy_j=found.energy_j,
        source=found.source,
        counter_j=found.counter_j,
        integral_j=found.integral_j,
        window_s=end_s - start_s,
        steps=steps,
        readings=len(samples),
        missed=found.missed,
        period_s=found.period_s,
        temperatures_c=(*before.temperatures_c, *after.temperatures_c),
        slice=part,
        estimated="the power is of the whole board, not of the part that the ranks have" if part else found.estimated,
        reason=None if found.reason is None else "; ".join([found.reason, *lacking]),
    )
