"""Utilisation is the share of a device's peak that a step used: MFU by the model's FLOPs, HFU by all that are executed.

MFU = model FLOPs / (step time x devices x dense peak)       HFU = hardware FLOPs / the same       MFU <= HFU <= 1
Chowdhery et al. 2022 ("PaLM", appendix B) and Korthikanti et al. 2022 ("Reducing activation recomputation").
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from parbench.accounts import precision_of
from parbench.cases import Measured
from parbench.gates import usable
from parbench.observed import Flops
from parbench.peaks import Peak, peak_of
from parbench.record import Better, Metric, Round, Warned

_UNSEEN = "the run ended before a step was inspected"
# Classes of operators that a peak is about, as `parbench.operators` names them.
_MATRIX = ("matrix product", "convolution", "attention", "recurrence")
_RATES = ("tflops_per_device", "mfu", "hfu")
_UNITS = {"tflops_per_device": "TFLOP/s", "mfu": "fraction", "hfu": "fraction"}


def flops_of(m: Measured) -> Flops | None:
    """Return what a step of the whole model computes; None where no step was inspected."""
    return m.inspected[0].flops if m.inspected else None


def utilisation(m: Measured, step_time: Metric, rounds: Sequence[Round]) -> tuple[dict[str, Metric], list[Warned]]:
    """Return the metrics of FLOPs and utilisation, and what makes them impossible.

    Args:
        m: what was measured.
        step_time: median over rounds, of which rates are made; where it is not believed, neither are they.
        rounds: the measured rounds; an epoch's last batch may be smaller.
    """
    flops = flops_of(m)
    if flops is None or flops.reason is not None:
        reason = _UNSEEN if flops is None else flops.reason or _UNSEEN
        return {name: Metric.unavailable(_unit(name), _better(name), reason) for name in (*_COUNTS, *_RATES)}, []
    good = usable(rounds)
    steps = sum(r.steps for r in good)
    per_sample = [sum(counted.values()) / flops.samples for counted in (flops.model, flops.hardware)]
    samples = sum(r.samples for r in good) / steps if steps else float(flops.samples)
    model, hardware = (_count(name, x * samples) for name, x in zip(_COUNTS, per_sample, strict=True))
    found = {"model_flops_per_step": model, "hardware_flops_per_step": hardware}
    devices = min(m.case.spec.world_size, m.gpus) if _device(m) != "cpu" else m.case.spec.world_size
    rate = _rate(
        "tflops_per_device", step_time, (model.value or 0.0) / devices / 1e12, f"model FLOPs, {devices} devices"
    )
    found["tflops_per_device"] = rate
    peak, doubt = _peak(m, flops)
    if isinstance(peak, str):
        return found | {name: Metric.unavailable("fraction", "higher", peak) for name in ("mfu", "hfu")}, []
    for name, count in (("mfu", model), ("hfu", hardware)):
        source = f"{name[0].replace('m', 'model').replace('h', 'hardware')} FLOPs / {devices} devices of"
        source += f" {peak.tflops:g} TFLOP/s dense ({peak.source})"
        one = _rate(name, step_time, (count.value or 0.0) / devices / (peak.tflops * 1e12), source)
        if doubt and one.quality == "measured":
            one = msgspec.structs.replace(one, quality="estimated", reason=doubt)
        found[name] = one
    return _possible(found, peak)


def _possible(found: dict[str, Metric], peak: Peak) -> tuple[dict[str, Metric], list[Warned]]:
    above = [name for name in ("mfu", "hfu") if (found[name].value or 0.0) > 1]
    if not above:
        return found, []
    told = f"{above[0].upper()} is {found[above[0]].value:.1%}: more than a peak of {peak.tflops:g} TFLOP/s allows"
    warning = Warned(
        code="utilisation_above_peak",
        message=f"{told} ({peak.source})",
        advice="the peak is claimed too low (--peak-tflops), or is of another arithmetic than the run's; or steps are "
        "not synchronised with the work",
    )
    return {
        name: one.suspected(told) if name in _RATES and one.value is not None else one for name, one in found.items()
    }, [warning]


_COUNTS = ("model_flops_per_step", "hardware_flops_per_step")


def _count(name: str, value: float) -> Metric:
    what = "forward and backward" if name == "model_flops_per_step" else "forward, backward and what it computes again"
    source = f"{what} of the whole model, counted from shapes on the meta device; matrix products only"
    return Metric(value=value, unit="FLOP", better=None, n=1, source=source)


def _rate(name: str, step_time: Metric, amount: float, source: str) -> Metric:
    """Return amount per step time; its interval is that of the step time, turned over."""
    if not step_time.value:
        return Metric.unavailable(_unit(name), "higher", step_time.reason or "there is no step time")
    low, high = (None if not x else amount / x for x in (step_time.ci_high, step_time.ci_low))
    return Metric(
        value=amount / step_time.value,
        unit=_unit(name),
        better="higher",
        n=step_time.n,
        ci_low=low,
        ci_high=high,
        source=f"{source}, / step_time_s",
        quality=step_time.quality,
        reason=step_time.reason,
    )


def _peak(m: Measured, flops: Flops) -> tuple[Peak | str, str | None]:
    """Return the peak of a device, or why it is not known; and what makes it doubtful."""
    if m.case.spec.peak_tflops is not None:
        return Peak(tflops=m.case.spec.peak_tflops, source="--peak-tflops"), None
    names = set(m.devices[: m.case.spec.world_size]) or {"cpu"}
    if len(names) > 1:
        return f"the ranks' devices differ ({', '.join(sorted(names))}): there is no one peak", None
    kinds = sorted(_arithmetic(m, flops))
    found = [peak_of(next(iter(names)), kind) for kind in kinds]
    known = [one for one in found if isinstance(one, Peak)]
    if len(known) < len(found) or not known:
        return next((one for one in found if isinstance(one, str)), "no matrix product was seen"), None
    best = max(known, key=lambda one: one.tflops)
    return best, f"computed in {' and '.join(kinds)}; held against the faster" if len(kinds) > 1 else None


def _arithmetic(m: Measured, flops: Flops) -> set[str]:
    seen = {name: kinds for name, kinds in precision_of(m).items() if name in _MATRIX}
    return {
        "tf32" if kind == "fp32" and name in flops.tf32 else kind
        for name, kinds in seen.items()
        for kind in kinds.split("+")
    }


def _device(m: Measured) -> str:
    return m.chosen["device"].value if "device" in m.chosen else "cpu"


def _unit(name: str) -> str:
    return _UNITS.get(name, "FLOP")


def _better(name: str) -> Better | None:
    return "higher" if name in _RATES else None
