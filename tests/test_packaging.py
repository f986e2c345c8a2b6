"""What a user installs: the wheel, in environments that hold nothing else of this checkout."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import parbench

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "tests" / "records" / "record-1.0.json"
PUBLIC = [
    "Agreement",
    "Environment",
    "Metric",
    "MissingError",
    "ParbenchError",
    "RankFailed",
    "RunRecord",
    "RunSpec",
    "Session",
    "StoreError",
    "Stuck",
    "UnreadableError",
    "UsageError",
    "load",
    "run",
]
OUTSIDER = {
    "pyproject.toml": """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "outsider"
version = "1.0"
[project.entry-points."parbench.strategies"]
halves = "outsider_halves:Halves"
[tool.setuptools]
py-modules = ["outsider_halves"]
""",
    "outsider_halves.py": '''
"""Halves the message: gradients are averaged in 16 bits."""

import torch

from parbench.api import Paper, Strategy, Trainer, backward


class Halves(Strategy):
    paper = Paper("None: a test", "https://example.org")
    agrees = "differently"

    def wrap(self, job, ctx):
        return HalvesTrainer(job, ctx)


class HalvesTrainer(Trainer):
    def __init__(self, job, ctx):
        self.job, self.ctx = job, ctx
        self.optimizer = job.optimizer(job.model.parameters())

    def step(self, batch):
        self.optimizer.zero_grad()
        loss = backward(self.job, self.ctx, self.job.model, batch)
        for parameter in self.job.model.parameters():
            half = parameter.grad.to(torch.bfloat16)
            self.ctx.comm.mean(half)
            parameter.grad.copy_(half)
        self.optimizer.step()
        return loss

    def full_parameters(self):
        return dict(self.job.model.named_parameters())
''',
}


class Installed:
    """An environment with the wheel in it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        self.site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))

    def install(self, wheel: Path) -> None:
        pip = (sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "--disable-pip-version-check")
        done(*pip, "install", "-q", "--no-index", "--no-deps", str(wheel))

    def parbench(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return ended(str(self.bin / "parbench"), *arguments, cwd=cwd)

    def python(self, code: str, cwd: Path) -> str:
        return done(str(self.bin / "python"), "-c", code, cwd=cwd).stdout


def ended(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    # Nothing of the environment that this test runs in may help.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PARBENCH", "PIP"))}
    return subprocess.run(
        command, cwd=cwd, env=kept, capture_output=True, text=True, timeout=110, check=False, stdin=subprocess.DEVNULL
    )


def done(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    finished = ended(*command, cwd=cwd)
    assert finished.returncode == 0, f"{command}: {finished.stdout}{finished.stderr}"
    return finished


def build(source: Path, into: Path) -> Path:
    # No isolation: setuptools is here already, and a test downloads nothing.
    done(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(into), str(source))
    (wheel,) = into.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # setuptools writes beside the sources: a copy keeps the checkout clean.
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("bench", "strategies"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return build(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def full(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel and, by a .pth file, the dependencies of the development environment.

    torch is hundreds of megabytes: a second copy of it would be downloaded for every test run. The .pth file lends what
    is installed; .pth files of what it lends are not read, so that the editable parbench there stays out.
    """
    environment = Installed(tmp_path_factory.mktemp("full"))
    environment.install(wheel)
    lent = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (environment.site / "lent.pth").write_text("\n".join(lent) + "\n", encoding="utf-8")
    return environment


@pytest.fixture(scope="session")
def reading(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel and what it declares as dependencies, without any extra: no torch, no scikit-learn."""
    environment = Installed(tmp_path_factory.mktemp("reading"))
    environment.install(wheel)
    for source in sorted(set(_files_of(_closure(_required(wheel))))):
        target = environment.site / source.name
        if not target.exists():
            target.symlink_to(source)
    return environment


def _required(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    return [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ") and "extra ==" not in line]


def _closure(required: Sequence[str]) -> set[str]:
    waiting, found = [Requirement(text) for text in required], set()
    while waiting:
        one = waiting.pop()
        if one.name in found or (one.marker is not None and not one.marker.evaluate({"extra": ""})):
            continue
        found.add(one.name)
        waiting += map(Requirement, importlib.metadata.requires(one.name) or ())
    return found


def _files_of(names: set[str]) -> Iterator[Path]:
    for name in names:
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__"):
                yield Path(str(distribution.locate_file(top)))


# ---- what is in it


def test_the_wheel_installs_two_names_and_no_generic_one(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (listed,) = (name for name in names if name.endswith("top_level.txt"))
        assert archive.read(listed).decode().split() == ["parbench", "parbench_strategies"]
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"parbench", "parbench_strategies"}


def test_the_wheel_holds_every_module_and_every_data_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {
        file.relative_to(ROOT / root).as_posix()
        for root in ("bench", "strategies")
        for pattern in ("*.py", "py.typed", "*.toml", "*.html", "*.css", "*.js")
        for file in (ROOT / root).rglob(pattern)
    }
    assert {"parbench/py.typed", "parbench_strategies/py.typed"} <= expected
    assert expected <= names


def test_public_names_are_these_and_all_resolve() -> None:
    assert parbench.__all__ == PUBLIC
    assert dir(parbench) == PUBLIC
    assert all(getattr(parbench, name) is not None for name in PUBLIC)
    with pytest.raises(AttributeError, match="public names: Agreement"):
        importlib.import_module("parbench").nothing  # noqa: B018


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    heavy = ("torch", "pandas", "numpy", "pyarrow", "psutil", "matplotlib", "jinja2")
    code = (
        "import sys\n"
        f"sys.argv = ['parbench', *{arguments!r}]\n"
        "from parbench.cli import main\n"
        "try:\n    main()\nexcept SystemExit as leaving:\n    assert not leaving.code\n"
        f"print('heavy:', sorted(set({heavy!r}) & set(sys.modules)))"
    )
    assert done(sys.executable, "-c", code).stdout.endswith("heavy: []\n")


# ---- installed with everything


def test_run_works_outside_the_checkout(full: Installed, tmp_path: Path) -> None:
    place = Path(full.python("import parbench; print(parbench.__file__)", tmp_path).strip())
    assert place.is_relative_to(full.site)
    command = "run digits --size smoke -s single -s ddp --steps 5 --warmup 1"
    finished = full.parbench(*command.split(), cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "✓ closely" in finished.stdout
    records = sorted((tmp_path / "results" / "digits").glob("*/record.json"))
    statuses = [json.loads(record.read_text(encoding="utf-8"))["status"] for record in records]
    assert statuses == ["complete", "complete"]


def test_a_strategy_of_an_installed_package_is_listed_and_runs(
    full: Installed, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    source = tmp_path_factory.mktemp("outsider")
    for name, text in OUTSIDER.items():
        (source / name).write_text(text, encoding="utf-8")
    full.install(build(source, tmp_path_factory.mktemp("outsider_wheel")))
    listed = json.loads(full.parbench("list", "strategies", "--json", cwd=tmp_path).stdout)["strategies"]
    (halves,) = (one for one in listed if one["name"] == "halves")
    assert halves["origin"] == "outsider_halves:Halves of outsider"
    assert halves["summary"] == "Halves the message: gradients are averaged in 16 bits."
    arguments = ["run", "digits", "--size", "smoke", "-s", "halves", "--steps", "2", "--warmup", "1"]
    finished = full.parbench(*arguments, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "halves" in finished.stdout


# ---- installed without torch


def test_without_torch_stored_records_are_read(reading: Installed, tmp_path: Path) -> None:
    absent = "import importlib.util as u; print([n for n in ('torch', 'sklearn', 'pytest') if u.find_spec(n)])"
    assert reading.python(absent, tmp_path) == "[]\n"
    stored = tmp_path / "stored"
    stored.mkdir()
    shutil.copy(RECORD, stored / "record.json")
    shown = (["show", "stored"], ["show", "stored", "--json"], ["compare", "stored"], ["baseline", "show", "stored"])
    reported = (["report", "stored"], ["report", "stored", "--figure", "step-time", "--format", "pdf"])
    for arguments in (["--help"], ["doctor"], ["doctor", "--json"], *shown, *reported):
        finished = reading.parbench(*arguments, cwd=tmp_path)
        assert finished.returncode == 0, f"{arguments}: {finished.stderr}"
        assert finished.stdout
    loaded = reading.python("import parbench; print(len(parbench.load('stored')))", tmp_path)
    assert int(loaded) > 0


@pytest.mark.parametrize("what", ["strategies", "workloads"])
def test_without_torch_plug_ins_are_listed(reading: Installed, tmp_path: Path, what: str) -> None:
    finished = reading.parbench("list", what, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert {"strategies": "ddp", "workloads": "digits"}[what] in finished.stdout
    assert "pip install 'parbench[run]'" in finished.stderr
    assert "broken" not in finished.stdout


def test_without_torch_run_says_which_line_installs_it(reading: Installed, tmp_path: Path) -> None:
    finished = reading.parbench("run", cwd=tmp_path)
    assert finished.returncode == 3
    expected = "parbench: training needs torch, which is not installed; run: pip install 'parbench[run]'\n"
    assert finished.stderr == expected
    assert finished.stdout == ""
    assert not (tmp_path / "results").exists()
