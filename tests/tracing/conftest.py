"""Traces of a job that knows no parbench, and the command that reads them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from parbench.cli import main

JOB = Path(__file__).parent / "foreign_job.py"


@pytest.fixture(scope="session")
def foreign(tmp_path_factory):
    """Run a user's job of two ranks under torch.profiler; return the folder with a folder of traces per strategy."""
    folder = tmp_path_factory.mktemp("foreign")
    command = [sys.executable, str(JOB), "ddp,fsdp,tensor,pipeline"]
    ranks = [
        subprocess.Popen([*command, str(rank), "2", str(folder)], stderr=subprocess.PIPE, text=True) for rank in (0, 1)
    ]
    try:
        said = [rank.communicate(timeout=100)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    return folder


@pytest.fixture
def command(capsys, monkeypatch):
    """Run `parbench trace` in this process and return its exit code, what it printed, and what it said beside."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["parbench", "trace", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "160")
        capsys.readouterr()
        try:
            code = main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in arguments and out else out, err

    return run
