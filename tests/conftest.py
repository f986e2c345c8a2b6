"""Fixtures of tests that start ranks: the command line here or in a process of its own, and what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pyarrow.parquet
import pytest

from parbench.cli import main

GONE_WITHIN_S = 10
_MARK = "PARBENCH_TESTS_ID"


@dataclass
class Finished:
    """A command that has ended, and what it left behind."""

    code: int
    out: str
    err: str
    seconds: float
    results: Path
    temporary: Path

    @property
    def document(self):
        return json.loads(self.out, parse_constant=_not_strict)

    @property
    def runs(self):
        """Runs of the document by strategy."""
        return {run["spec"]["strategy"]: run for run in self.document["runs"]}

    @property
    def records(self):
        """Stored records by strategy."""
        found = [json.loads(p.read_bytes(), parse_constant=_not_strict) for p in self.results.rglob("record.json")]
        return {record["spec"]["strategy"]: record for record in found}

    def folder(self, record):
        return self.results / record["suite"] / record["id"]

    def steps(self, record):
        return pyarrow.parquet.read_table(self.folder(record) / "steps.parquet").to_pylist()

    def leftovers(self):
        partial = [p for p in self.results.rglob("*") if p.name.startswith(".partial")]
        return [*self.temporary.glob("parbench-*"), *partial]


@dataclass
class Running:
    """A command that runs, in a session of its own."""

    process: subprocess.Popen
    started_s: float
    results: Path
    temporary: Path

    @property
    def descendants(self):
        return psutil.Process(self.process.pid).children(recursive=True)

    @property
    def servers(self):
        """The forkserver, and what it has forked."""
        return [p for p in self.descendants if "parbench.launch.preload" in _command_of(p)]

    def ranks(self, count):
        """Wait for the ranks and return their processes in rank order."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            ranks = [p for p in self.servers if p.ppid() != self.process.pid]
            if len(ranks) == count:
                return sorted(ranks, key=lambda p: p.pid)
            time.sleep(0.02)
        raise AssertionError(f"{count} ranks never came up")

    def signal(self, number, *, group=False):
        (os.killpg if group else os.kill)(self.process.pid, number)

    def wait(self, timeout=60):
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
            pytest.fail(f"the command did not end within {timeout} s; it said:\n{out}\n{err}")
        seconds = time.monotonic() - self.started_s
        return Finished(self.process.returncode, out, err, seconds, self.results, self.temporary)


@pytest.fixture(scope="session")
def mark():
    """Set a variable by which processes that descend from this test session are known, whoever their parent is."""
    os.environ[_MARK] = str(uuid.uuid4())
    yield os.environ[_MARK]
    del os.environ[_MARK]


@pytest.fixture
def start(tmp_path, mark):
    """Start `parbench run` in a session of its own."""
    running = []

    def begin(*arguments, fault="", out="results", **variables):
        temporary = tmp_path / f"tmp{len(running)}"
        temporary.mkdir()
        told = (*arguments, *_left_out(arguments))
        command = [sys.executable, "-m", "parbench", "run", *map(str, told), "-o", str(tmp_path / out)]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PARBENCH_FAULT": fault, "TMPDIR": str(temporary), "COLUMNS": "10000", **variables},
        )
        running.append(Running(process, time.monotonic(), tmp_path / out, temporary))
        return running[-1]

    yield begin
    for one in running:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.communicate()


@pytest.fixture
def parbench(tmp_path, mark, capsys, monkeypatch):
    """Run the command line to its end in this process, whose forkserver has torch loaded already."""
    runs = []

    def run(*arguments, fault="", columns="10000"):
        temporary, results = tmp_path / f"tmp-here{len(runs)}", tmp_path / f"results-here{len(runs)}"
        temporary.mkdir()
        runs.append(results)
        monkeypatch.setenv("PARBENCH_FAULT", fault)
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        told = (*arguments, *_left_out(arguments))
        monkeypatch.setattr(sys, "argv", ["parbench", "run", *map(str, told), "-o", str(results)])
        capsys.readouterr()
        started_s = time.monotonic()
        try:
            code = main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return Finished(code, out, err, time.monotonic() - started_s, results, temporary)

    return run


@pytest.fixture
def no_orphans(mark):
    """Fail a test that leaves a process or a listening port behind."""
    before = {p.pid for p in marked(mark)}
    ports = listening()
    yield
    deadline = time.monotonic() + GONE_WITHIN_S
    while (left := [p for p in marked(mark) if p.pid not in before]) and time.monotonic() < deadline:
        time.sleep(0.05)
    told = [(p.pid, p.status()) for p in left]
    for process in left:
        process.kill()
    assert not told, f"left behind: {told}"
    assert listening() <= ports


def marked(mark):
    """Return the processes of this test session, its own forkserver and the tracker beside it left out."""
    server = forkserver._forkserver._forkserver_pid
    kept = {os.getpid(), server}
    found = psutil.Process(server).children() if server and psutil.pid_exists(server) else []
    kept |= {process.pid for process in found}
    for process in psutil.process_iter():
        try:
            ours = process.pid not in kept and process.environ().get(_MARK) == mark
            if ours and process.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in str(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def listening():
    """Return the ports on which this process listens."""
    return {c.laddr.port for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN}


def _left_out(arguments):
    """Leave out what would double the time of most tests, unless asked for: weighing, traces, pages of reports."""
    if "--help" in arguments:
        return ()
    given = {str(one).partition("=")[0] for one in arguments}
    wanted = {
        "--no-memory": {"--memory"},
        "--no-trace": {"--trace", "--trace-steps", "--execution-trace"},
        "--no-report": {"--report"},
    }
    return tuple(flag for flag, asked in wanted.items() if not given & asked)


def _command_of(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _not_strict(token):
    raise AssertionError(f"{token} is not strict JSON")
