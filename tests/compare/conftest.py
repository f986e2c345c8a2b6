"""The command line on records stored in a temporary folder."""

import json
import sys

import pytest

from parbench.cli import main
from parbench.store import Store


@pytest.fixture
def stored(tmp_path):
    """Store records under a name and return the folder."""

    def store(name, records):
        for record in records:
            Store(tmp_path / name).write(record, steps={}, files={})
        return str(tmp_path / name)

    return store


@pytest.fixture
def command(capsys, monkeypatch):
    """Run parbench and return exit code, stdout (a document where it is JSON) and stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["parbench", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "160")
        capsys.readouterr()
        try:
            code = main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, json.loads(out, parse_constant=_not_strict) if "--json" in arguments and out else out, err

    return run


def _not_strict(token):
    raise AssertionError(f"{token} is not strict JSON")
