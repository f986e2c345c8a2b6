"""The environment tells what changes results and nothing about who ran them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from parbench import environment
from parbench.environment import capture, variables


def git(folder: Path, *arguments: object) -> str:
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("a = 1\n")
    (tmp_path / "notes.md").write_text("notes\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_facts_of_this_machine() -> None:
    facts = capture().facts
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert facts["memory_gib"] > 0
    assert facts["python"] == sys.version.split()[0]
    assert facts["load_1min"] >= 0
    assert facts["cpu"]


def test_fingerprint_is_of_hardware_and_software_of_the_rest(repo: Path) -> None:
    first = capture(repo)
    assert capture(repo).fingerprint == first.fingerprint
    assert capture(repo, {"cuda:0": "NVIDIA H200"}).fingerprint != first.fingerprint
    assert capture(repo, {"cuda:0": "NVIDIA H200"}).software == first.software
    moved = [capture(repo, {name: "NVIDIA H200"}).fingerprint for name in ("cuda:0", "cuda:5")]
    assert moved[0] == moved[1]


def test_commit_and_clean_tree(repo: Path) -> None:
    found = capture(repo)
    assert found.facts["commit"] == git(repo, "rev-parse", "HEAD")
    assert (found.facts["dirty"], found.facts["diff"]) == (False, None)


@pytest.mark.parametrize("name", ["code.py", "new.py"])
def test_changed_or_new_code_is_other_software(repo: Path, name: str) -> None:
    clean = capture(repo)
    (repo / name).write_text("a = 2\n")
    first = capture(repo)
    (repo / name).write_text("a = 3\n")
    second = capture(repo)
    assert first.facts["dirty"] is True
    assert len({clean.software, first.software, second.software}) == 3


def test_changed_notes_are_dirty_but_no_other_software(repo: Path) -> None:
    (repo / "notes.md").write_text("other\n")
    first = capture(repo)
    (repo / "notes.md").write_text("another\n")
    assert first.facts["dirty"] is True
    assert capture(repo).software == first.software


def test_a_folder_without_git_has_no_commit(tmp_path: Path) -> None:
    facts = capture(tmp_path).facts
    assert (facts["commit"], facts["dirty"], facts["diff"]) == (None, None, None)


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("a = 1\n")
    facts = capture(tmp_path).facts
    assert (facts["commit"], facts["dirty"]) == (None, True)


def test_without_git_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert capture().facts["commit"] is None


def test_a_git_that_hangs_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(environment, "_GIT_TIMEOUT_S", 0.2)
    assert capture().facts["commit"] is None


def test_only_variables_that_change_results_are_kept() -> None:
    given = {
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_DEBUG": "INFO",
        "SLURM_JOB_ID": "7",
        "PATH": "/bin",
        "WANDB_API_KEY": "w",
        "HF_TOKEN": "h",
        "SLURM_JOB_USER": "alice",
        "HOME": "/home/alice",
    }
    assert variables(given) == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_DEBUG": "INFO",
        "OMP_NUM_THREADS": "1",
        "SLURM_JOB_ID": "7",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PARBENCH_API_KEY", "hunter2hunter2"),
        ("TORCH_HUB_TOKEN", "hunter2hunter2"),
        ("PARBENCH_PROXY", "https://hunter2hunter2@example.org/x"),
        ("PARBENCH_PROXY", "https://me:hunter2hunter2@example.org/x"),
        ("PARBENCH_URL", "https://example.org/?token=hunter2hunter2&x=1"),
        ("PARBENCH_NOTE", "password: hunter2hunter2"),
        ("NCCL_NOTE", "hf_hunter2hunter2"),
        ("TORCH_HOME", "/home/hunter2hunter2/.cache"),
        ("TORCHINDUCTOR_CACHE_DIR", "/tmp/torchinductor_hunter2hunter2"),
        ("CUDA_VISIBLE_DEVICES", "GPU-abcdef12-3456-hunter2hunter2"),
    ],
)
def test_secrets_and_names_never_leave(name: str, value: str) -> None:
    found = variables({name: value, "USER": "hunter2hunter2"})
    assert list(found) == [name]
    assert "hunter2" not in found[name]


def test_nothing_in_the_facts_names_host_user_or_home() -> None:
    planted = {
        "HF_TOKEN": "plantedsecret",
        "USER": "planteduser",
        "HOME": "/home/planteduser",
        "TORCH_HOME": "/home/planteduser/t",
    }
    text = msgspec.json.encode(capture(environ=planted)).decode()
    assert "planted" not in text
    assert f'"{socket.gethostname()}"' not in text


def test_capture_never_imports_torch() -> None:
    code = "import sys; from parbench.environment import capture; capture(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
