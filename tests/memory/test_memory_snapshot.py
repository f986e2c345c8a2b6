"""A snapshot is of the weighed steps alone, ends whatever happens, and is refused where there is no such allocator."""

import pytest
import torch

from parbench.memory_snapshot import snapshot


@pytest.fixture
def calls(monkeypatch):
    """Stand in for torch's own functions, which need a GPU; none was at hand when this was written."""
    found = []
    memory = torch.cuda.memory
    monkeypatch.setattr(memory, "_record_memory_history", lambda enabled="all", **rest: found.append(enabled))
    monkeypatch.setattr(memory, "_dump_snapshot", lambda path: found.append(path))
    return found


def test_it_is_of_what_happens_in_the_context_and_no_longer(calls, tmp_path):
    into = tmp_path / "memory" / "rank0.pickle"
    with snapshot(into, torch.device("cuda", 0)):
        assert calls == ["all"]
    assert calls == ["all", str(into), None]
    assert into.parent.is_dir()


def test_an_error_ends_it_and_writes_nothing(calls, tmp_path):
    with pytest.raises(ZeroDivisionError), snapshot(tmp_path / "rank0.pickle", torch.device("cuda", 0)):
        raise ZeroDivisionError
    assert calls == ["all", None]


def test_the_host_has_no_such_history(calls, tmp_path):
    with snapshot(tmp_path / "rank0.pickle", torch.device("cpu")), snapshot(None, torch.device("cuda", 0)):
        pass
    assert calls == []


def test_it_is_refused_before_anything_starts(parbench):
    done = parbench("digits", "-s", "ddp", "--device", "cpu", "--memory-snapshot")
    assert done.code == 3
    assert "keeps the history of CUDA's allocator, and cases compute on cpu" in done.err
    assert not done.results.exists()
