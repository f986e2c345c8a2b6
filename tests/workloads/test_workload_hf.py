"""hf: models of Hugging Face transformers by configuration; most of it is skipped without the extra `hf`."""

import hashlib
import importlib.util
import json

import pytest
import torch
from workload_cases import CPU, META

from parbench.conformance.workloads import workload_laws
from parbench.errors import MissingError, UsageError
from parbench.flops import training_flops
from parbench.registry import Registry


def named(text):
    return Registry().resolve("workload", text)


def test_without_transformers_it_is_a_sentence(monkeypatch):
    one = named("hf(gpt2)")
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "transformers" else find(name))
    assert "pip install 'parbench[hf]'" in one.unsupported()
    with pytest.raises(MissingError, match="transformers"):
        one.build("smoke", 0, CPU, 2)


def test_the_configuration_is_the_data_that_decides(tmp_path):
    (tmp_path / "config.json").write_bytes(b"{}")
    assert named(f"hf({str(tmp_path)!r})").data_hash() == hashlib.sha256(b"{}").hexdigest()
    assert named("hf(gpt2)").data_hash() is None


@pytest.fixture
def transformers():
    return pytest.importorskip("transformers")


@pytest.fixture
def folder(tmp_path, transformers):
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = {"model_type": "llama", "vocab_size": 100, "num_key_value_heads": 2, **shape}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_type_of_model_is_as_its_papers(transformers):
    """GPT-2: 124,439,808 parameters, and 6 P + 12 L D T FLOPs per token."""
    job = named("hf(gpt2)").build("full", 0, META, 2)
    assert sum(p.numel() for p in job.model.parameters()) == 124_439_808
    per_token = 6 * (12 * 12 * 768**2 + 50257 * 768) + 12 * 12 * 768 * 512
    assert sum(training_flops(job).values()) == 2 * 512 * per_token


def test_a_folder_obeys_the_laws_of_workloads(folder):
    broken = [f for f in workload_laws(named(f"hf(config={str(folder)!r})")) if f.outcome == "broken"]
    assert not broken


def test_no_position_sees_the_ones_after_it_and_nothing_is_dropped(folder):
    job = named(f"hf(config={str(folder)!r})").build("smoke", 0, CPU, 2)
    tokens = job.batch(0).inputs
    later = tokens.clone()
    later[:, 9:] = (later[:, 9:] + 1) % 100
    with torch.no_grad():
        torch.testing.assert_close(job.model(tokens)[:, :9], job.model(later)[:, :9])
        assert torch.equal(job.model(tokens), job.model(tokens))


def test_nothing_is_downloaded_unless_told(transformers, monkeypatch):
    asked = []

    def refuse(*args, **kwargs):
        asked.append(kwargs)
        raise OSError("there is no such thing")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", refuse)
    with pytest.raises(UsageError, match="download=True"):
        named("hf('somebody/something')").build("smoke", 0, CPU, 2)
    assert asked == [{"local_files_only": True}]
