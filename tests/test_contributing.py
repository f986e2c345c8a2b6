"""CONTRIBUTING is executed: its strategy, workload and probe pass their laws and run, as a newcomer would do it."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from parbench.cli import main

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, re.DOTALL))
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
]


def test_there_is_one_of_each_kind():
    bases = [re.search(r"\nclass \w+\((\w+)\):", body)[1] for body in FILES.values()]
    assert bases == ["Strategy", "GatherCompressor", "Workload", "Probe"]
    assert len(COMMANDS) == 8


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_walk_through(tmp_path, monkeypatch, capsys, command):
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)
    short = ["--steps", "4", "--warmup", "1"] if words[1] == "run" else []
    monkeypatch.setattr(sys, "argv", [*words, *short])
    with pytest.raises(SystemExit) as ended:
        sys.exit(main())
    assert not ended.value.code, capsys.readouterr()
