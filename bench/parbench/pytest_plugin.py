"""A pytest plug-in: every cell of a suite is a pytest-benchmark test, whose rounds are real training rounds.

pytest --parbench-suite suite.toml --benchmark-autosave
pytest --parbench-suite suite.toml --benchmark-compare --benchmark-compare-fail=median:10%

The suite is measured once, its cells in turns, and stored as `parbench run` does; each test then replays its own
rounds. A round counts with the seconds per step of its slowest rank, so that the median is `step_time_s`. Nothing of
torch is imported before a suite is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, final

import pytest

if TYPE_CHECKING:
    from parbench.record import RunRecord
    from parbench.spec import RunSpec

_SUITE, _OUT = "parbench_suite", "parbench_out"


class Benchmark(Protocol):
    """What is used of pytest-benchmark's fixture."""

    extra_info: dict[str, object]

    def pedantic(self, target: Callable[[], None], *, rounds: int) -> None:
        """Call `target` as often as that, and time each call."""
        ...


@final
class _Clock:
    """Seconds of rounds that were measured; it moves only when a round is told to it."""

    def __init__(self) -> None:
        self.elapsed_s: float | None = None

    def add(self, seconds: float) -> None:
        self.elapsed_s = (self.elapsed_s or 0.0) + seconds


# pytest-benchmark wants a timer with a name in a module, which it writes into its files.
_CLOCK = _Clock()


def slowest_rank_seconds() -> float:
    """Return the seconds of all rounds so far, each as its slowest rank saw it; the timer of tests of suites.

    Raises:
        UsageError: no rounds are being told: `benchmark(function)` would wait for ever for this clock to move.
    """
    if _CLOCK.elapsed_s is None:
        from parbench.errors import UsageError

        raise UsageError(
            "this timer counts seconds of training rounds, not of calls: benchmark(function) cannot use it; "
            "use parbench.pytest_plugin.tell_rounds(benchmark, ...)"
        )
    return _CLOCK.elapsed_s


def tell_rounds(benchmark: Benchmark, seconds: Iterable[float], count: int) -> None:
    """Let pytest-benchmark take `count` rounds of the seconds given; live ones are measured as they are asked for.

    Args:
        benchmark: the fixture of a test with `@pytest.mark.benchmark(timer=slowest_rank_seconds)`.
        seconds: of each round; a generator that steps a `parbench.Session` measures live ranks.
        count: rounds.
    """
    rounds = iter(seconds)
    _CLOCK.elapsed_s = 0.0
    try:
        benchmark.pedantic(lambda: _CLOCK.add(next(rounds)), rounds=count)
    finally:
        _CLOCK.elapsed_s = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--parbench-suite` and `--parbench-out`."""
    group = parser.getgroup("parbench")
    group.addoption(
        "--parbench-suite",
        metavar="SUITE.toml",
        dest=_SUITE,
        help="Measure a suite of parbench: each cell is a benchmark. Without other paths nothing else is collected.",
    )
    group.addoption(
        "--parbench-out", metavar="DIR", dest=_OUT, default="results", help="Where its records are stored (results)."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let the suite be collected, alone unless paths were given."""
    suite = config.getoption(_SUITE)
    if suite is None:
        return
    if not config.pluginmanager.hasplugin("benchmark"):
        raise pytest.UsageError("--parbench-suite needs pytest-benchmark: pip install pytest-benchmark")
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    config.args = [*config.args, suite] if named else [suite]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the suite that was named."""
    suite = parent.config.getoption(_SUITE)
    if suite is None or Path(suite).resolve() != file_path.resolve():
        return None
    collected: pytest.Collector = SuiteFile.from_parent(parent, path=file_path)
    return collected


@final
class SuiteFile(pytest.Module):
    """A suite: a test per cell."""

    def _getobj(self) -> object:
        import types

        return types.ModuleType(self.path.stem)

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test per cell, in the order of the suite."""
        from parbench.errors import ParbenchError
        from parbench.suite import load

        try:
            specs = load(self.path).specs
        except ParbenchError as error:
            raise pytest.UsageError(str(error)) from error
        names = [_name(spec, specs) for spec in specs]
        for k, (name, spec) in enumerate(zip(names, specs, strict=True)):
            unique = name if names.count(name) == 1 else f"{name} {k}"
            test = pytest.Function.from_parent(self, name=unique, callobj=_test_of(k))
            test.add_marker(
                pytest.mark.benchmark(timer=slowest_rank_seconds, group=f"{spec.workload}/{spec.size}", warmup=False)
            )
            if self.config.pluginmanager.hasplugin("timeout"):
                # The first test waits for the whole suite, whose cells have a deadline of their own (`timeout_s`).
                test.add_marker(pytest.mark.timeout(0))
            yield test


@pytest.fixture(scope="session")
def parbench_records(request: pytest.FixtureRequest) -> list[list[RunRecord]]:
    """Measure the suite once and return the fresh launches of every cell, in the order of the suite."""
    from parbench.registry import Registry
    from parbench.resolve import resolve
    from parbench.spec import spec_id
    from parbench.suite import load
    from parbench.sweep import run_sweep

    suite, registry = load(Path(request.config.getoption(_SUITE))), Registry()
    outcome = run_sweep(suite, out=Path(request.config.getoption(_OUT)), registry=registry, fresh=True)
    if outcome.store_error is not None:
        pytest.fail(f"the records could not be stored: {outcome.store_error}", pytrace=False)
    wanted = [spec_id(spec) for spec in resolve(suite, registry).specs]
    return [[record for record in outcome.records if record.spec_id == one] for one in wanted]


def _test_of(cell: int) -> Callable[[Benchmark, list[list[RunRecord]]], None]:
    def test(benchmark: Benchmark, parbench_records: list[list[RunRecord]]) -> None:
        _replay(benchmark, parbench_records[cell])

    return test


def _replay(benchmark: Benchmark, records: list[RunRecord]) -> None:
    """Tell the rounds of a cell's launches, and everything else that was measured as extra information."""
    from parbench.benchfile import extra_info
    from parbench.gates import usable

    if unsupported := [one for one in records if one.status == "unsupported"]:
        pytest.skip(unsupported[0].reason or "unsupported")
    broken = [f"{one.status}: {one.reason}" for one in records if one.status != "complete"]
    broken += [f"diverged: {one.numerics}" for one in records if one.numerics != "finite"]
    if broken:
        pytest.fail("; ".join(broken), pytrace=False)
    seconds = [r.wall_s / r.steps for one in records for r in usable(one.rounds)]
    benchmark.extra_info |= extra_info(records)
    tell_rounds(benchmark, seconds, len(seconds))


def _name(spec: RunSpec, specs: tuple[RunSpec, ...]) -> str:
    """Return what a test is called: workload, size, strategy, ranks asked for, and what else differs between cells."""
    told = ("workload", "size", "strategy", "world_size")
    others = [
        name for name in spec.__struct_fields__ if name not in told and len({getattr(s, name) for s in specs}) > 1
    ]
    more = "".join(f" {name}={getattr(spec, name)}" for name in others)
    return f"{spec.workload}/{spec.size} {spec.strategy} -n {spec.world_size}{more}"
