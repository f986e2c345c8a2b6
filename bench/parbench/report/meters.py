"""What meters read of one run, in lines: memory by part and phase, FLOPs, every board's power and what explains it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.text import Text

from parbench.observed import Reading
from parbench.record import RunRecord
from parbench.report.words import number, size, visible


def meter_lines(record: RunRecord) -> Iterator[Text]:
    """Return the lines of memory, FLOPs, power and the harness's own cost."""
    yield from _memory(record)
    yield from _flops(record)
    yield from _power(record)
    cost_s = record.launch.get("harness_s_per_step")
    if isinstance(cost_s, float):
        yield Text(f"the timed loop alone: {number(cost_s * 1e6)} µs per step")
    cores = record.launch.get("neighbour_cores")
    if isinstance(cores, float):
        yield Text(f"other processes during the timed rounds: {number(cores, 2)} cores")


def _memory(record: RunRecord) -> Iterator[Text]:
    use = record.memory
    if use is None or use.reason is not None or not use.rank < len(use.ranks):
        return
    one = use.ranks[use.rank]
    yield Text(f"memory at the peak of rank {use.rank}: {_sizes(use.parts)}; in all {size(one.peak_bytes)}")
    yield Text(f"  most by phase: {_sizes(one.phases)}")
    yield Text(f"  by rank: {', '.join(size(each.peak_bytes) for each in use.ranks)}")
    if use.predicted_bytes is not None and use.difference_bytes is not None:
        said = f"  closed form of states: {size(use.predicted_bytes)}, {_signed(use.difference_bytes)} at the peak"
        yield Text(f"{said}; {_signed(use.unexplained_bytes)} than the storages seen alive")
    if one.facts:
        yield Text(f"  allocator: {', '.join(f'{visible(name, 40)} {value}' for name, value in one.facts.items())}")


def _flops(record: RunRecord) -> Iterator[Text]:
    found = record.flops
    if found is None or found.reason is not None or not found.samples:
        return
    total = sum(found.model.values())
    parts = sorted(found.model.items(), key=lambda pair: -pair[1])[:6]
    shares = ", ".join(f"{visible(name, 60)} {value / total:.0%}" for name, value in parts) if total else "nothing"
    again = sum(found.hardware.values()) / total - 1 if total else 0.0
    yield Text(f"FLOPs of {found.samples} samples: {total:.4g} ({shares}); {again:.1%} computed again")


def _power(record: RunRecord) -> Iterator[Text]:
    if record.power is not None:
        yield from (Text(_board(one)) for one in record.power.boards)


def _board(one: Reading) -> str:
    name = f"{visible(one.name, 60)}{'' if one.index is None else f' {one.index}'} on host {one.host}"
    if one.energy_j is None:
        return f"{name}: no energy, {visible(one.reason or 'no reason given')}"
    both = {"counter": one.counter_j, "integral of power": one.integral_j}
    sources = ", ".join(f"{label} {number(value, 4)} J" for label, value in both.items() if value is not None)
    facts = {
        "idle": (one.idle_w, "W"),
        "limit": (one.limit_w, "W"),
        "clocks": ("-".join(map(str, dict.fromkeys(one.clocks_mhz))) or None, "MHz"),
        "temperature": ("-".join(map(str, dict.fromkeys(one.temperatures_c))) or None, "°C"),
        "other processes": (one.others, ""),
    }
    told = ", ".join(
        f"{label} {number(value) if isinstance(value, float) else value} {unit}".strip()
        for label, (value, unit) in facts.items()
        if value is not None
    )
    power = f"{number(one.energy_j / one.window_s)} W over {number(one.window_s)} s" if one.window_s else "no window"
    return f"{name} ({visible(one.scope, 60)}): {power}; {sources}{'; ' if told else ''}{told}"


def _sizes(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{visible(name, 40)} {size(value)}" for name, value in parts.items()) or "nothing"


def _signed(value: float) -> str:
    return f"{size(abs(value))} {'more' if value >= 0 else 'less'}"
