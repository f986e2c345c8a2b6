"""Where results cannot be printed: one sentence and the right code, and no healthy strategy is called failed."""

import json
import os
import subprocess
import sys

import pytest

SHORT = ["run", "digits", "--size", "smoke", "-s", "ddp", "--steps", "2", "--warmup", "1", "--parity-steps", "1"]


def shell(command, folder):
    line = f"{sys.executable} -m parbench {command}"
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=100, env=os.environ)
    return done.returncode, done.stdout, done.stderr


def test_a_closed_stdout_does_not_make_a_strategy_fail(tmp_path):
    code, _, err = shell(f"{' '.join(SHORT)} --json -o out >&-", tmp_path)
    assert code == 0, err
    (record,) = [json.loads(path.read_bytes()) for path in tmp_path.glob("out/digits/*/record.json")]
    assert record["status"] == "complete"


@pytest.mark.parametrize("command", ["list strategies", "doctor --json"])
def test_a_full_stdout_is_one_sentence_and_exit_6(tmp_path, command):
    code, _, err = shell(f"{command} > /dev/full", tmp_path)
    assert code == 6, err
    assert err.splitlines() == [
        "parbench: the results cannot be printed: No space left on device; make room where stdout goes"
    ]


def test_a_reader_who_has_seen_enough_is_not_told_anything(tmp_path):
    code, out, err = shell("list workloads | head -1; exit ${PIPESTATUS[0]}", tmp_path)
    assert (code, len(out.splitlines()), err) == (0, 1, "")


def test_a_deadline_shorter_than_starting_takes_is_a_timeout_or_a_result_never_a_traceback(tmp_path):
    code, _, err = shell(f"{' '.join(SHORT)} --timeout 0.001 -o out", tmp_path)
    assert code in (0, 5), err
    assert "Traceback" not in err
