"""Tests of the command line, with an engine that measures nothing: flags, exit codes, what goes where."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from parbench import cli
from parbench.events import Event, Listener
from parbench.metrics import Cell, combine
from parbench.record import Environment, RunRecord, Status
from parbench.registry import Registry
from parbench.requirements import NO_DEMANDS, Demands
from parbench.resolve import resolve
from parbench.spec import spec_id
from parbench.suite import Suite


@dataclass
class FakeOutcome:
    records: list[RunRecord]
    path: Path
    cells: list[Cell] = field(default_factory=list)
    document: bytes = b'{"runs":[]}'
    exit_code: int = 0
    store_error: str | None = None
    notes: list[str] = field(default_factory=list)
    leads: bool = True


@dataclass
class FakeEngine:
    """Records what it was asked to do."""

    status: Status = "complete"
    exit_code: int = 0
    store_error: str | None = None
    raises: BaseException | None = None
    suites: list[Suite] = field(default_factory=list)
    fresh: bool = False
    demands: Demands = NO_DEMANDS
    out: Path | None = None

    def run_sweep(
        self, suite: Suite, *, out: Path, registry: Registry, fresh: bool, listener: Listener, demands: Demands
    ) -> FakeOutcome:
        if self.raises is not None:
            raise self.raises
        suite = resolve(suite, registry)  # as the engine does
        self.suites.append(suite)
        self.fresh, self.out, self.demands = fresh, out, demands
        total = len(suite.specs)
        listener(Event(kind="plan", total=total))
        environment = Environment(fingerprint="f", software="s", facts={})
        records = []
        for k, spec in enumerate(suite.specs):
            listener(Event(kind="round", case="c", cell=k, done=k, total=total, step=5, steps=10, median_s=0.1))
            message = f"rank 1/2 step 3 ZeroDivisionError \x1b[31m{k}" if self.status == "failed" else ""
            listener(Event(kind="case", case=spec.strategy, cell=k, done=k + 1, total=total, message=message))
            records.append(
                RunRecord(
                    id=str(k),
                    suite=suite.name,
                    status=self.status,
                    reason=None if self.status == "complete" else "because",
                    started_at="",
                    spec=spec,
                    spec_id=spec_id(spec),
                    environment=environment,
                )
            )
        return FakeOutcome(
            records=records,
            cells=combine(records),
            path=out / suite.name,
            exit_code=self.exit_code,
            store_error=self.store_error,
            notes=[*suite.notes, "a note of the engine"],
        )


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()
    module = ModuleType("parbench.sweep")
    vars(module)["run_sweep"] = fake.run_sweep
    monkeypatch.setitem(sys.modules, "parbench.sweep", module)
    return fake


@dataclass
class Done:
    code: int
    out: str
    err: str


class Parbench:
    """Calls the command line in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Done:
        self._monkeypatch.setattr(sys, "argv", ["parbench", *arguments])
        try:
            code = cli.main()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 0
        out, err = self._capsys.readouterr()
        return Done(code, out, err)


@pytest.fixture
def parbench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Parbench:
    monkeypatch.delenv("COLUMNS", raising=False)
    return Parbench(monkeypatch, capsys)


def test_importing_the_command_line_pulls_in_nothing_heavy() -> None:
    code = "import sys, parbench.cli; print([m for m in ('torch','pandas','numpy','pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_python_dash_m_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "parbench", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("parbench 0")


def test_help_teaches(parbench: Parbench) -> None:
    text = parbench("run", "--help").out
    for flag in ("--strategy", "--world-size", "--set", "--plugin", "--dry-run", "--parity-steps", "Examples"):
        assert flag in text


def test_what_must_be_there_reaches_the_engine(parbench: Parbench, engine: FakeEngine, tmp_path: Path) -> None:
    flags = "digits -s ddp --require power --exclusive --find-max-batch --no-memory --memory-gib 2 --peak-tflops 1.5"
    done = parbench("run", *flags.split(), "-o", str(tmp_path))
    assert done.code == 0, done.err
    assert engine.demands == Demands(require=("power",), exclusive=True, find_max_batch=True)
    spec = engine.suites[0].specs[0]
    assert (spec.memory, spec.memory_gib, spec.peak_tflops) == (False, 2.0, 1.5)


@pytest.mark.parametrize(
    ("flags", "steps", "execution"),
    [("", 3, False), ("--no-trace", 0, False), ("--trace-steps 7 --execution-trace", 7, True)],
)
def test_flags_say_how_much_is_traced(
    parbench: Parbench, engine: FakeEngine, tmp_path: Path, flags: str, steps: int, execution: bool
) -> None:
    assert parbench("run", "digits", "-s", "ddp", *flags.split(), "-o", str(tmp_path)).code == 0
    spec = engine.suites[0].specs[0]
    assert (spec.trace_steps, spec.execution_trace) == (steps, execution)
    assert spec_id(spec) == spec_id(msgspec.structs.replace(spec, trace_steps=3, execution_trace=False))


@pytest.mark.parametrize("flags", ["--no-trace --trace-steps 5", "--no-trace --execution-trace"])
def test_to_trace_and_not_to_trace_is_refused(parbench: Parbench, engine: FakeEngine, flags: str) -> None:
    done = parbench("run", "digits", "-s", "ddp", *flags.split())
    assert done.code == 2
    assert "--no-trace leaves out what" in done.err
    assert not engine.suites


def test_flags_become_specs(parbench: Parbench, engine: FakeEngine, tmp_path: Path) -> None:
    flags = "digits -s ddp -s no_overlap -n 2 -n 3 --size smoke --steps 7 --warmup 2 --repeats 2 --global-batch-size 32"
    more = (
        "--accumulate 2 --precision bf16 --device cpu --backend gloo --seed 5 --timeout 9 --parity-steps 1 --threads 2"
    )
    done = parbench("run", *flags.split(), *more.split(), "--fresh", "-o", str(tmp_path))
    assert done.code == 0, done.err
    spec = engine.suites[0].specs[0]
    assert [(one.world_size, one.strategy) for one in engine.suites[0].specs] == [
        (2, "ddp"),
        (2, "no_overlap"),
        (3, "ddp"),
        (3, "no_overlap"),
    ]
    assert (spec.workload, spec.size, spec.steps, spec.warmup, spec.repeats) == ("digits", "smoke", 7, 2, 2)
    assert (spec.global_batch_size, spec.accumulate, spec.precision) == (32, 2, "bf16")
    assert (spec.device, spec.backend, spec.seed, spec.timeout_s) == ("cpu", "gloo", 5, 9.0)
    assert (spec.parity_steps, spec.threads) == (1, 2)
    assert engine.fresh
    assert engine.out == tmp_path


def test_results_go_to_stdout_and_messages_to_stderr(parbench: Parbench, engine: FakeEngine, tmp_path: Path) -> None:
    done = parbench("run", "digits", "--size", "smoke", "-o", str(tmp_path))
    assert str(tmp_path / "digits") in done.out
    assert "single always runs on 1 rank" in done.err
    assert "a note of the engine" in done.err
    assert "note" not in done.out


def test_json_is_the_only_thing_on_stdout(parbench: Parbench, engine: FakeEngine) -> None:
    assert json.loads(parbench("run", "digits", "--size", "smoke", "--json").out) == {"runs": []}


def test_progress_is_silent_without_a_terminal_but_for_failures(parbench: Parbench, engine: FakeEngine) -> None:
    assert "step" not in parbench("run", "digits", "--size", "smoke").err
    engine.status, engine.exit_code = "failed", 4
    done = parbench("run", "digits", "--size", "smoke")
    assert done.code == 4
    assert "rank 1/2 step 3 ZeroDivisionError" in done.err
    assert "\x1b" not in done.err + done.out
    assert "because" in done.out


def test_a_result_that_cannot_be_stored_is_still_printed(parbench: Parbench, engine: FakeEngine) -> None:
    engine.store_error, engine.exit_code = "no space left on device", 6
    done = parbench("run", "digits", "--size", "smoke")
    assert done.code == 6
    assert "digits/smoke" in done.out
    assert "no space left" in done.err


@pytest.mark.parametrize(("flags", "code"), [((), 0), (("--strict",), 3)])
def test_unsupported_counts_under_strict(
    parbench: Parbench, engine: FakeEngine, flags: tuple[str, ...], code: int
) -> None:
    engine.status = "unsupported"
    assert parbench("run", "digits", "--size", "smoke", *flags).code == code


def test_dry_run_starts_nothing(parbench: Parbench, engine: FakeEngine, tmp_path: Path) -> None:
    done = parbench("run", "digits", "--size", "smoke", "--dry-run", "-o", str(tmp_path / "out"))
    assert done.code == 0
    assert "pipeline" in done.out
    assert not engine.suites
    assert not (tmp_path / "out").exists()
    document = json.loads(parbench("run", "digits", "--size", "smoke", "--dry-run", "--json").out)
    assert [cell["spec"]["strategy"] for cell in document["cells"]] == ["single", "ddp", "fsdp", "tensor", "pipeline"]
    assert document["cells"][0]["spec"]["steps"] == 100


def test_suite_files_take_flags_and_set(parbench: Parbench, engine: FakeEngine, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[workload]\nname="digits"\nsize="small"\n[matrix]\nstrategy=["ddp"]\n[run]\nsteps=5\n')
    done = parbench("run", str(path), "--steps", "6", "--set", "workload.size=smoke", "--suite-name", "mine")
    assert done.code == 0, done.err
    found = engine.suites[0]
    assert (found.name, found.specs[0].steps, found.specs[0].size) == ("mine", 6, "smoke")


USAGE = [
    ("run digits -s dpp", "ddp"),
    ("run digit", "digits"),
    ("run digits --size smal", "small"),
    ("run digits -s ../../x", "parbench list strategies"),
    ("run digits -s os:system", "parbench list strategies"),
    ("run digits --steps 0", "from 1"),
    ("run digits --steps -1", "-1"),
    ("run digits --steps five", "five"),
    ("run digits --warmup 0", "leave it out"),
    ("run digits --global-batch-size 1e309", "1e309"),
    ("run digits --global-batch-size NaN", "NaN"),
    ("run digits -n 0", "--world-size"),
    ("run digits -n 1.5", "1.5"),
    ("run digits --timeout 0", "--timeout"),
    ("run digits --timeout nan", "--timeout"),
    ("run digits --timeout inf", "--timeout"),
    ("run digits --seed -1", "--seed"),
    ("run digits --precision fp99", "bf16"),
    ("run digits --device tpu", "cuda"),
    ("run digits --set stepss=5", "steps"),
    ("run digits --set steps", "KEY=VALUE"),
    ("run digits --plugin no/such.py", "--plugin"),
    ("run no/such.toml", "no/such.toml"),
    ("run no/such.json", "no/such.json"),
    ("run --stepz 5", "--steps"),
    ("list compilers", "strategies"),
    ("show no/such", "no/such"),
    ("frobnicate", "frobnicate"),
]


@pytest.mark.parametrize(("line", "part"), USAGE)
def test_what_cannot_be_meant_is_refused_with_exit_2(
    parbench: Parbench, engine: FakeEngine, line: str, part: str
) -> None:
    done = parbench(*line.split())
    assert done.code == 2
    assert part in done.err
    assert not done.out
    assert not engine.suites


def test_very_long_names_are_refused(parbench: Parbench, engine: FakeEngine) -> None:
    assert parbench("run", "a" * 5000).code == 2
    assert parbench("run", "a" * 3000).code == 2


def test_errors_print_no_escapes(parbench: Parbench, engine: FakeEngine) -> None:
    done = parbench("run", "\x1b]0;owned\x07")
    assert done.code == 2
    assert "\x1b" not in done.err


def test_bugs_are_not_swallowed(parbench: Parbench, engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.raises = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        parbench("run", "digits", "--size", "smoke")
    assert "please report" in capsys.readouterr().err


def test_list_says_what_there_is(parbench: Parbench) -> None:
    text = parbench("list", "strategies").out
    assert "bucket_cap_mb=None" in text
    assert "https://arxiv.org/abs/2006.15704" in text
    assert "smoke" in parbench("list", "workloads").out
    names = [entry["name"] for entry in json.loads(parbench("list", "strategies", "--json").out)["strategies"]]
    assert {"single", "ddp", "no_overlap"} <= set(names)


def test_list_shows_broken_plugins(parbench: Parbench, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from parbench.api import Strategy\nraise RuntimeError('\x1b[31mno luck')\n")
    done = parbench("list", "strategies", "--plugin", str(path))
    assert done.code == 0
    assert "broken" in done.out
    assert "no luck" in " ".join(done.out.split())
    assert "\x1b" not in done.out
    assert "ddp" in done.out


def test_doctor_says_what_is_missing(parbench: Parbench, tmp_path: Path) -> None:
    done = parbench("doctor", "-o", str(tmp_path / "new"))
    assert done.code == 0
    for part in ("python", "torch", "gloo", "nccl", "cores", "memory", "network lab", "NVML", "results"):
        assert part in done.out
    assert not (tmp_path / "new").exists()
    checks = json.loads(parbench("doctor", "--json").out)["checks"]
    assert all(set(check) == {"name", "value", "unavailable"} for check in checks)


def test_doctor_works_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; from parbench.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "doctor"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install 'parbench[run]'" in " ".join(done.stdout.split())


def test_run_without_torch_prints_the_pip_line() -> None:
    code = "import sys; sys.modules['torch'] = None; from parbench.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "run"], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "pip install 'parbench[run]'" in done.stderr
