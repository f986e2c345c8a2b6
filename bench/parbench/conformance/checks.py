"""Checks put one plug-in through its laws: strategies in live ranks, others in this process."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from pathlib import Path

from parbench.conformance.findings import Finding, Verdict
from parbench.conformance.source import source_laws
from parbench.conformance.strategies import strategy_laws
from parbench.discover import Kind
from parbench.grammar import parse
from parbench.registry import Registry
from parbench.session import Session


def check_strategy(
    strategy: str, world_size: int = 2, *, plugins: Sequence[str | Path] = (), session: Session | None = None
) -> Verdict:
    """Put a strategy through every law.

    Args:
        strategy: its name, with arguments if wanted.
        world_size: ranks to examine it in; one that always uses a certain number gets that.
        plugins: files whose plug-ins may be named.
        session: live ranks to use, with the same plug-ins; started here and ended if not given.

    Raises:
        UsageError: there is no such strategy, or its arguments are wrong.
        RankFailed: a rank raised or died in the examination: the strategy does not even run.
        Stuck: the examination hung.
    """
    registry = session.registry if session is not None else Registry([Path(p) for p in plugins])
    started_s = time.perf_counter()
    findings = _source(registry, "strategy", strategy)
    ranks = min(registry.resolve("strategy", strategy).ranks or world_size, world_size)
    if session is None:
        with Session(ranks, plugins=registry.plugins) as own:
            facts = own.examine(strategy, ranks)
    else:
        facts = session.examine(strategy, ranks)
    seconds = dict(facts[0].seconds) | {"all": time.perf_counter() - started_s}
    findings += strategy_laws(facts)
    return Verdict(kind="strategy", name=strategy, world_size=ranks, findings=tuple(findings), seconds=seconds)


def check_compressor(
    compressor: str,
    world_size: int = 2,
    *,
    plugins: Sequence[str | Path] = (),
    registry: Registry | None = None,
) -> Verdict:
    """Put a compressor through every law, in this process; the engine's laws are those of `replicated(compressor=...)`.

    Args:
        compressor: its name, with arguments if wanted.
        world_size: ranks that exchange, as threads.
        plugins: files whose plug-ins may be named.
        registry: used instead of one made from `plugins`.

    Raises:
        UsageError: there is no such compressor, or its arguments are wrong.
    """
    from parbench.conformance.compressors import compressor_laws  # torch

    registry = registry or Registry([Path(p) for p in plugins])
    started_s = time.perf_counter()
    findings = _source(registry, "compressor", compressor)
    findings += compressor_laws(registry.resolve("compressor", compressor), world_size)
    seconds = {"all": time.perf_counter() - started_s}
    return Verdict(kind="compressor", name=compressor, world_size=world_size, findings=tuple(findings), seconds=seconds)


def check_workload(workload: str, *, plugins: Sequence[str | Path] = (), registry: Registry | None = None) -> Verdict:
    """Put a workload through every law, in this process.

    Args:
        workload: its name, with arguments if wanted.
        plugins: files whose plug-ins may be named.
        registry: used instead of one made from `plugins`.

    Raises:
        UsageError: there is no such workload, or its arguments are wrong.
    """
    from parbench.conformance.workloads import workload_laws  # torch

    registry = registry or Registry([Path(p) for p in plugins])
    started_s = time.perf_counter()
    findings = _source(registry, "workload", workload)
    findings += workload_laws(registry.resolve("workload", workload))
    seconds = {"all": time.perf_counter() - started_s}
    return Verdict(kind="workload", name=workload, world_size=None, findings=tuple(findings), seconds=seconds)


def check_probe(probe: str, *, plugins: Sequence[str | Path] = (), registry: Registry | None = None) -> Verdict:
    """Put a probe through every law, in this process.

    Args:
        probe: its name, with arguments if wanted.
        plugins: files whose plug-ins may be named.
        registry: used instead of one made from `plugins`.

    Raises:
        UsageError: there is no such probe, or its arguments are wrong.
    """
    from parbench.conformance.probes import probe_laws  # torch

    registry = registry or Registry([Path(p) for p in plugins])
    started_s = time.perf_counter()
    findings = _source(registry, "probe", probe)
    laws, overhead_s = probe_laws(registry.resolve("probe", probe))
    seconds = {"all": time.perf_counter() - started_s}
    if overhead_s is not None:
        seconds["overhead per step"] = overhead_s
    return Verdict(kind="probe", name=probe, world_size=None, findings=(*findings, *laws), seconds=seconds)


def _source(registry: Registry, kind: Kind, written: str) -> list[Finding]:
    cls = registry.load(kind, parse(written).name)
    return source_laws(Path(inspect.getfile(cls)), cls, paper=kind in ("strategy", "compressor"))
