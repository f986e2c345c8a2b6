"""Strategies at a fixed memory or fixed tokens: which of their batches are compared, and what the header says."""

import pytest
from compare_cases import launches

from parbench.budget import parse_budget
from parbench.errors import UsageError
from parbench.record import Metric


def needs(mib):
    return {"peak_memory_bytes": Metric(value=mib * 2**20, unit="bytes", better="lower")}


def test_each_strategy_is_taken_at_its_best_batch_within_memory(command, stored):
    # One step of 64 samples takes 10 ms and a larger batch is more efficient, but ddp's does not fit.
    records = [
        *launches([0.010] * 5, strategy="ddp", global_batch_size=64, metrics=needs(100)),
        *launches([0.016] * 5, strategy="ddp", global_batch_size=128, metrics=needs(180)),
        *launches([0.011] * 5, strategy="fsdp", global_batch_size=64, metrics=needs(60)),
        *launches([0.006] * 5, strategy="fsdp", global_batch_size=128, metrics=needs(90)),
    ]
    path = stored("memory", records)
    code, document, _ = command("compare", path, "--fixed", "memory=120MiB", "--reference", "ddp", "--json")
    assert code == 0
    (fsdp,) = [cell for cell in document["cells"] if cell["strategy"] == "fsdp"]
    metrics = {one["metric"]: one for one in fsdp["metrics"]}
    assert metrics["samples_per_s"]["ratio"] == pytest.approx(0.010 / 0.006, rel=0.01)  # rounds of 64 samples each
    assert "step_time_s" not in metrics, "steps of two batches are not compared"
    ddp, fsdp = sorted(document["fixed"], key=lambda text: "fsdp" in text)
    assert "fixed 120MiB of memory per rank" in ddp
    assert "ddp at a global batch of 64" in ddp
    assert "fsdp at a global batch of 128" in fsdp


def test_tokens_of_a_step_can_be_fixed(command, stored):
    records = [
        *launches([0.010] * 2, strategy="ddp", global_batch_size=64),
        *launches([0.020] * 2, strategy="ddp", global_batch_size=128),
        *launches([0.011] * 2, strategy="fsdp", global_batch_size=128),
    ]
    path = stored("tokens", records)
    _, document, _ = command("compare", path, "--fixed", "tokens=128", "--reference", "ddp", "--json")
    assert {cell["strategy"] for cell in document["cells"]} == {"ddp", "fsdp"}
    (fixed,) = document["fixed"]
    assert fixed.startswith("digits/small: fixed 128 tokens per step, whatever the sequence length; ")
    assert fixed.endswith("at a global batch of 128")
    code, _, err = command("compare", path, "--fixed", "tokens=7")
    assert code == 2
    assert "steps here have 64, 128 tokens" in err
    code, _, err = command("compare", path, "--fixed", "memory=1GiB")
    assert code == 2
    assert "no record has peak_memory_bytes" in err


@pytest.mark.parametrize(("text", "amount"), [("memory=8GiB", 2**33), ("memory=1.5 MB", 1.5e6), ("tokens=4096", 4096)])
def test_budgets_are_read(text, amount):
    assert parse_budget(text).amount == amount


@pytest.mark.parametrize(
    "text", ["", "memory", "memory=", "memory=-1", "memory=8XB", "tokens=4KiB", "tokens=0", "watts=3"]
)
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(UsageError, match="memory=8GiB"):
        parse_budget(text)
