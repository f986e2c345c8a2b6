"""The digits workload: models by hand, what it learns, what is held out."""

from __future__ import annotations

import sys

import pytest
import torch
from workload_cases import CPU, META, losses

from parbench.errors import MissingError, UsageError
from parbench.workloads.digits import Digits


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("smoke", (64 + 1) * 16 + (16 + 1) * 16 + (16 + 1) * 10),
        ("small", (64 + 1) * 256 + (256 + 1) * 256 + (256 + 1) * 10),
        ("cnn", (9 * 1 + 1) * 16 + (9 * 16 + 1) * 32 + (9 * 32 + 1) * 64 + (64 + 1) * 10),
    ],
)
def test_parameters_by_hand(size: str, expected: int) -> None:
    assert sum(p.numel() for p in Digits().build(size, 0, META, 64).model.parameters()) == expected


def test_the_first_loss_recomputed_from_the_raw_weights() -> None:
    """Two hidden layers and a head written out in matrix products: what the golden losses stand on."""
    job = Digits().build("small", 0, CPU, 64)
    p = {name: tensor.detach().double() for name, tensor in job.model.named_parameters()}
    batch = job.batch(0)
    x = batch.inputs.double()
    for layer in ("layers.0.linear", "layers.1.linear"):
        x = (x @ p[f"{layer}.weight"].T + p[f"{layer}.bias"]).clamp(min=0)
    logits = x @ p["head.weight"].T + p["head.bias"]
    nats = logits.exp().sum(1).log() - logits[torch.arange(64), batch.targets]
    assert losses(job, 1)[0] == pytest.approx(nats.mean().item(), rel=1e-6)


@pytest.mark.parametrize("size", ["smoke", "small", pytest.param("cnn", marks=pytest.mark.nightly)])
def test_it_learns_what_it_has_not_seen(size: str) -> None:
    job = Digits().build(size, 0, CPU, 64)
    seen = losses(job, 150)
    assert seen[0] == pytest.approx(2.303, abs=0.1)  # ln 10
    assert job.held_out is not None
    assert job.held_out(job.model)["accuracy"] > 0.9


def test_an_epoch_is_22_batches_of_64_and_one_of_30() -> None:
    job = Digits().build("smoke", 0, META, 64)
    assert [job.batch(step).samples for step in range(24)] == [64] * 22 + [30] + [64]
    with pytest.raises(UsageError, match="1 to 1438"):
        Digits().build("smoke", 0, META, 1439)


def test_inputs_are_scaled_and_no_epoch_holds_a_held_out_image() -> None:
    train = Digits().build("smoke", 0, META, 1438).batch(0)
    other_seed = Digits().build("smoke", 9, META, 1438).batch(0)
    assert train.inputs.min() == 0
    assert train.inputs.max() == 1
    assert torch.equal(train.inputs.sum(0), other_seed.inputs.sum(0))  # sixteenths add exactly: the same images


def test_the_hash_names_the_data() -> None:
    assert Digits().data_hash() == Digits().data_hash()
    assert len(Digits().data_hash()) == 64


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Digits().unsupported() is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert "pip install scikit-learn" in (Digits().unsupported() or "")
    with pytest.raises(MissingError, match="pip install scikit-learn"):
        Digits().build("smoke", 0, CPU, 64)


def test_the_table_read_without_scikit_learn_is_its_own():
    from sklearn.datasets import load_digits

    from parbench.workloads._digits import load

    pixels, labels = load()
    theirs, their_labels = load_digits(return_X_y=True)
    assert (pixels == theirs).all()
    assert (labels == their_labels).all()
    assert labels.dtype == their_labels.dtype
    assert pixels.dtype == theirs.dtype
