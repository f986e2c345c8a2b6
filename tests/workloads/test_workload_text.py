"""The text workload: vocabulary, windows, split, Python's documentation, the user's files."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
import torch
from workload_cases import CPU, META, losses

from parbench.errors import MissingError, UsageError
from parbench.workloads import _corpus, _windows
from parbench.workloads.text import Text


def test_characters_have_fixed_ids_and_foreign_ones_share_the_replacement() -> None:
    ids = _corpus.encode("\n ~A\té€\U0001f600\x7f")
    assert ids.tolist() == [1, 2, 96, 2 + ord("A") - 32, 0, 0, 0, 0, 0]
    assert _corpus.VOCABULARY == 97


def test_line_breaks_are_one_character_and_a_byte_order_mark_is_none() -> None:
    assert _corpus.decode(b"\xef\xbb\xbfa\r\nb", "it") == "a\nb"


def test_an_epoch_is_the_train_text_and_held_out_windows_lie_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    content = "".join(chr(33 + k % 94) if k % 95 else "\n" for k in range(4000))
    path.write_text(content, encoding="utf-8", newline="")
    job = Text(path=str(path)).build("smoke", 0, META, 10)
    ids = _corpus.encode(content)
    windows = (3600 - 1) // 32
    steps = -(-windows // 10)
    batches = [job.batch(step) for step in range(steps)]
    assert [b.samples for b in batches] == [10] * (steps - 1) + [windows - 10 * (steps - 1)]
    seen = sorted(map(tuple, torch.cat([b.inputs for b in batches]).tolist()))
    assert seen == sorted(map(tuple, ids[: 32 * windows].view(-1, 32).tolist()))
    for b in batches:
        assert torch.equal(b.inputs[:, 1:], b.targets[:, :-1])
    train, held_out = _windows.split(ids, 32, "it")
    assert train.targets.flatten()[-1] == ids[32 * windows]
    assert 32 * windows < 3600
    assert torch.equal(held_out.inputs.flatten(), ids[3600 : 3600 + held_out.inputs.numel()])


def test_held_out_windows_are_few_and_spread() -> None:
    ids = torch.arange(100_000).remainder(97).to(torch.uint8)
    _, held_out = _windows.split(ids, 32, "it")
    spread = _windows.spread(held_out, 128)
    assert spread.samples == 128
    assert torch.equal(spread.inputs[0], held_out.inputs[0].long())
    assert _windows.spread(held_out.cut(0, 5), 128).samples == 5


def test_pythons_documentation_is_learned() -> None:
    workload = Text()
    job = workload.build("smoke", 0, CPU, workload.default_batch_size("smoke"))
    assert job.held_out is not None
    before = job.held_out(job.model)
    seen = losses(job, 60)
    after = job.held_out(job.model)
    assert seen[0] == pytest.approx(4.575, abs=0.1)  # ln 97
    assert seen[-1] < 3.6
    assert after["loss"] < before["loss"] - 0.8
    assert after["accuracy"] > before["accuracy"]


def test_the_hash_is_that_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"hello")
    assert Text(path=str(path)).data_hash() == hashlib.sha256(b"hello").hexdigest()
    assert Text().data_hash() == Text().data_hash() != Text(path=str(path)).data_hash()


def test_no_such_file_and_no_file_at_all(tmp_path: Path) -> None:
    missing = Text(path=str(tmp_path / "none.txt"))
    for call in (missing.data_hash, lambda: missing.build("smoke", 0, CPU, 2)):
        with pytest.raises(
            UsageError, match=r"none\.txt': No such file or directory; give the path of a UTF-8 text file"
        ):
            call()
    with pytest.raises(UsageError, match="Is a directory"):
        Text(path=str(tmp_path)).data_hash()
    with pytest.raises(UsageError, match="null"):
        Text(path="a\0b").data_hash()


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"caf\xe9 " * 1000)
    with pytest.raises(UsageError, match=r"not UTF-8 text \(byte 3 is 0xe9\).*iconv"):
        Text(path=str(path)).build("smoke", 0, CPU, 2)


@pytest.mark.parametrize("content", ["", "x" * 329])
def test_a_file_that_is_too_short(content: str, tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=f"{len(content)} characters.*at least 330"):
        Text(path=str(path)).build("smoke", 0, CPU, 1)


def test_the_shortest_file_that_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_text("x" * 330, encoding="utf-8")
    job = Text(path=str(path)).build("smoke", 0, CPU, 9)
    assert job.batch(0).samples == 9  # (297 - 1) // 32
    assert job.held_out is not None
    assert set(job.held_out(job.model)) == {"loss", "accuracy"}
    with pytest.raises(UsageError, match=r"global batch size 10 .* 1 to 9"):
        Text(path=str(path)).build("smoke", 0, CPU, 10)


def test_a_python_without_its_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Text().unsupported() is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    assert "pydoc_data" in (Text().unsupported() or "")
    assert Text(path="any").unsupported() is None
    with pytest.raises(MissingError, match="pydoc_data"):
        Text().data_hash()
