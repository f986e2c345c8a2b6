"""The GPT: exact parameter counts, causality, whole heads per slice, synthetic tokens."""

from __future__ import annotations

import time

import pytest
import torch
from workload_cases import CPU, META

from parbench.workloads._gpt_model import Attention, GptShape
from parbench.workloads.gpt import Gpt
from parbench.workloads.text import Text


def count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())  # a tied parameter counts once


def formula(layers: int, width: int, vocabulary: int, context: int, *, tied: bool) -> int:
    """Count by hand: attention 4 D^2 + 4 D, perceptron 8 D^2 + 5 D, two norms 4 D a layer; final norm 2 D."""
    per_layer = 12 * width**2 + 13 * width
    return layers * per_layer + (vocabulary * (1 if tied else 2) + context + 2) * width


@pytest.mark.parametrize(("size", "published"), [("gpt2", 124_439_808), ("gpt2-medium", 354_823_168)])
def test_gpt2_has_the_published_number_of_parameters(size: str, published: int) -> None:
    shape = Gpt.sizes[size]
    assert formula(shape["layers"], shape["width"], 50257, 1024, tied=True) == published
    assert count(Gpt().build(size, 0, META, 1).model) == published


@pytest.mark.parametrize(("size", "expected"), [("small", 1.06e6), ("25m", 25.3e6)])
def test_sizes_are_about_what_their_names_say(size: str, expected: float) -> None:
    assert count(Gpt().build(size, 0, META, 1).model) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("workload", [Gpt(), Text()])
def test_every_size_has_the_number_of_parameters_of_the_formula(workload: Gpt | Text) -> None:
    for size, s in workload.sizes.items():
        expected = formula(s["layers"], s["width"], s["vocabulary"], s["context"], tied=bool(s["tied"]))
        assert count(workload.build(size, 0, META, 1).model) == expected


def test_tied_embeddings_stay_one_parameter_on_a_real_device(monkeypatch: pytest.MonkeyPatch) -> None:
    tied = {"layers": 1, "width": 8, "heads": 2, "context": 4, "vocabulary": 16, "tied": 1}
    monkeypatch.setattr(Gpt, "sizes", {"tied": tied})
    job = Gpt().build("tied", 0, CPU, 2)
    assert job.model.get_parameter("head.logits.weight") is job.model.get_parameter("embedding.tokens.weight")
    assert count(job.model) == formula(1, 8, 16, 4, tied=True)
    batch = job.batch(0)
    job.loss(job.model(batch.inputs), batch).backward()
    assert all(p.grad is not None for p in job.model.parameters())


def test_no_position_sees_the_ones_after_it() -> None:
    job = Gpt().build("smoke", 0, CPU, 2)
    tokens = job.batch(0).inputs
    changed = tokens.clone()
    changed[:, 20:] = (changed[:, 20:] + 1) % 256
    before, after = job.model(tokens), job.model(changed)
    torch.testing.assert_close(before[:, :20], after[:, :20])
    assert not torch.allclose(before[:, 20:], after[:, 20:])


def test_column_and_row_slices_of_attention_are_whole_heads() -> None:
    """What tensor parallelism does with `shardings`, by hand: the partial outputs of two ranks add up to the whole."""
    shape = GptShape(layers=1, width=16, heads=4, context=8, vocabulary=10, tied=False)
    narrow = GptShape(layers=1, width=8, heads=2, context=8, vocabulary=10, tied=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        whole, x = Attention(shape), torch.randn(3, 8, 16)
        total = whole.out.bias.expand(3, 8, 16)
        for rank in range(2):
            part = Attention(narrow)
            rows, columns = slice(24 * rank, 24 * (rank + 1)), slice(8 * rank, 8 * (rank + 1))
            part.qkv.weight, part.qkv.bias = (torch.nn.Parameter(t[rows]) for t in (whole.qkv.weight, whole.qkv.bias))
            part.out.weight, part.out.bias = torch.nn.Parameter(whole.out.weight[:, columns]), None
            total = total + part(x)
    torch.testing.assert_close(total, whole(x))


def test_the_first_weights_are_gpt2s() -> None:
    parameters = dict(Gpt().build("small", 0, CPU, 1).model.named_parameters())
    for name, p in parameters.items():
        if name.endswith("bias"):
            assert not p.any()
        elif "norm" in name:
            assert (p == 1).all()
        else:
            residual = name.endswith(("out.weight", "down.weight"))
            assert p.std().item() == pytest.approx(0.02 / (8**0.5 if residual else 1), rel=0.05)


def test_synthetic_tokens_are_in_range_skewed_and_cheap() -> None:
    job = Gpt().build("gpt2", 0, META, 8)
    start = time.perf_counter()
    batches = [job.batch(step) for step in range(20)]
    elapsed_s = time.perf_counter() - start
    tokens = torch.cat([b.inputs for b in batches])
    assert tokens.min() >= 0
    assert tokens.max() < 50257
    # P(token < V / 10) = P(u < 0.1 ** (1 / 3))
    assert (tokens < 5025).float().mean().item() == pytest.approx(0.1 ** (1 / 3), abs=0.01)
    assert elapsed_s / 20 < 0.05  # measured 0.1 to 0.3 ms; wide for a busy machine
    assert not torch.equal(batches[0].inputs, batches[1].inputs)
    assert torch.equal(batches[0].inputs[:, 1:], batches[0].targets[:, :-1])


def test_there_is_nothing_to_hold_out_and_nothing_to_hash() -> None:
    job = Gpt().build("smoke", 0, META, 1)
    assert job.held_out is None
    assert "synthetic" in job.held_out_reason
    assert Gpt().data_hash() is None
