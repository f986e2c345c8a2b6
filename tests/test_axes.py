"""Axes change how a job is computed and not what: recomputation, half precision, compilation."""

import copy
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from parbench import RunSpec, axes, parity
from parbench.agreement import SGD
from parbench.operators import OperatorTypes
from parbench.registry import Registry

TEXT = Registry().resolve("workload", "text")


class Operators(TorchDispatchMode):
    """Counts operators by name."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def job(**settings):
    return axes.applied(TEXT.build("smoke", 0, torch.device("cpu"), 8), spec(**settings))


def spec(**settings):
    return RunSpec(workload="text", strategy="single", **settings)


def train(one, steps=3, dtype=None):
    """Return losses, weights and what the last step counted."""
    optimizer = one.optimizer(one.model.parameters())
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        batch = one.batch(step)
        with Operators() as operators:
            with torch.autocast("cpu", dtype=dtype) if dtype else nullcontext():
                outputs = one.model(batch.inputs)
            loss = one.loss(outputs.float(), batch) / batch.samples
            loss.backward()
        optimizer.step()
        losses.append(loss.detach().item() / one.loss_scale)
    return losses, [p.detach().clone() for p in one.model.parameters()], operators.seen


@pytest.fixture(scope="module")
def plain():
    return train(job())


@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_recomputation_changes_no_bit(plain, recompute):
    losses, weights, _ = train(job(recompute=recompute))
    assert losses == plain[0]
    assert all(torch.equal(a, b) for a, b in zip(weights, plain[1], strict=True))


def test_full_recomputation_repeats_what_backward_needs_and_selective_no_matrix_product(plain):
    once, full = plain[2], train(job(recompute="full"))[2]
    selective = train(job(recompute="selective"))[2]
    attention = "_scaled_dot_product_flash_attention_for_cpu"
    # Two blocks: attention, and both norms of each, run again; so does the norm of the head.
    assert (once[attention], full[attention], selective[attention]) == (2, 4, 2)
    assert (once["native_layer_norm"], full["native_layer_norm"]) == (5, 10)
    # Forward of a block has 4 products. The last, into the residual, is not needed again: nothing keeps its result.
    assert full["addmm"] == once["addmm"] + 2 * 3
    assert selective["addmm"] == once["addmm"]
    assert selective["native_layer_norm"] > once["native_layer_norm"]


def test_names_and_hooks_of_the_model_stay_as_they_are():
    bare, axed = job(), job(recompute="selective")
    assert list(dict(bare.model.named_parameters())) == list(dict(axed.model.named_parameters()))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in axed.model.modules())
    copied = copy.deepcopy(axed.model)
    inputs = axed.batch(0).inputs
    with torch.no_grad():
        for parameter in axed.model.parameters():
            parameter.zero_()
    assert copied(inputs).abs().sum() > 0, "the copy still computes with the original's weights"


def test_half_precision_scales_the_loss_and_gives_gradients_of_the_right_size():
    full, half = job(), job(precision="fp16")
    assert half.loss_scale == 1024
    train(full, 1)
    train(half, 1, torch.float16)
    for a, b in zip(full.model.parameters(), half.model.parameters(), strict=True):
        # The optimizer has divided the gradient by the scale; 2^-11 is half precision's rounding.
        assert torch.allclose(a.grad, b.grad, rtol=0.05, atol=20 * 2**-11 * a.grad.abs().max().item())


def test_small_gradients_survive_half_precision_because_of_the_scale():
    one = job(precision="fp16")
    small = torch.nn.Parameter(torch.ones(4))
    optimizer = one.optimizer([small])
    # 2^-30 is under the smallest half; times 1024 it is 2^-20, which is not.
    small.grad = (torch.full((4,), 2.0**-30) * one.loss_scale).half().float()
    optimizer.step()
    assert torch.equal(small.grad, torch.full((4,), 2.0**-30))


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", None), ("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_the_types_that_operators_compute_in_are_seen(precision, dtype):
    one = job(precision=precision)
    with OperatorTypes() as types:
        train(one, 1, dtype)
    seen = types.by_class()
    assert seen["matrix product"] == seen["attention"] == precision
    assert seen["loss"] == "fp32"
    assert seen["normalisation"] == "fp32"


def test_agreement_is_checked_with_gradients_of_the_right_size():
    """Plain SGD, which the check uses besides the workload's optimizer, once trained on scaled gradients."""
    full, half = job(), job(precision="fp16")
    for one in (full, half):
        sgd = replace(one, optimizer=parity.optimizers(one)[SGD])
        train(sgd, 1, torch.float16 if one is half else None)
    moved = [(a - b).abs().max() for a, b in zip(full.model.parameters(), half.model.parameters(), strict=True)]
    assert max(moved) < 1e-4


def test_compilation_without_a_compiler_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(axes.shutil, "which", lambda name: None)
    assert "C++ compiler" in axes.unsupported(spec(compile=True))
    assert axes.unsupported(spec()) is None


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("no_orphans")
def test_compilation_is_timed_apart_and_never_in_a_timed_round(parbench):
    done = parbench("text", "--size", "smoke", "-s", "single", "-s", "ddp", "--compile", "--steps", 20, "--json")
    assert done.code == 0, done.err
    first = done.runs["single"]["metrics"]["compile_s"]["value"] + done.runs["ddp"]["metrics"]["compile_s"]["value"]
    assert first > 1
    for run in done.runs.values():
        assert run["agreement"]["passed"], run["agreement"]
        assert run["metrics"]["step_time_s"]["value"] < first / 10
    codes = {w["code"] for record in done.records.values() for w in record["warnings"]}
    assert {code for code in codes if code.endswith("_differs")} | (codes & {"compiled_in_rounds"}) == set()
