"""Time to loss on curves made by hand: where a loss is reached, by what, and where it is not."""

import math

import pytest
from compare_cases import a_record

from parbench.record import Metric
from parbench.store import Store


@pytest.fixture
def trained(tmp_path):
    """Store runs whose two ranks took given seconds for steps with given losses."""

    def store(*runs):
        for k, (strategy, losses, seconds, metrics, *network) in enumerate(runs):
            count = len(losses)
            ranks, steps = [0] * count + [1] * count, [*range(count)] * 2
            columns = {
                "phase": ["warmup" if s < 2 else "timed" for s in steps],
                "round": steps,
                "rank": ranks,
                "step": steps,
                "seconds": [seconds if r else seconds / 2 for r in ranks],
                "samples": [8] * 2 * count,
                "loss": [losses[s] + (0.1 if r else -0.1) for s, r in zip(steps, ranks, strict=True)],
            }
            record = a_record(strategy=strategy, repeat=k, metrics=metrics, network=network[0] if network else None)
            Store(tmp_path / "results").write(record, steps=columns, files={})
        return tmp_path / "results"

    return store


def sent(bytes_per_step):
    return {"traffic_bytes_per_step": Metric(value=bytes_per_step, unit="bytes", better="lower")}


def test_cheap_steps_and_more_of_them_can_lose(command, trained):
    # The mean of five steps is 1.0 after the 9th (losses 1.4 to 0.6) and, half as steep, after the 14th (1.2 to 0.8).
    quick = [2.2 - 0.2 * k for k in range(12)]
    slow = [2.1 - 0.1 * k for k in range(20)]
    path = trained(("ddp", quick, 0.10, sent(100.0)), ("topk", slow, 0.06, sent(10.0)))
    code, document, _ = command("compare", path, "--by-loss", "--target-loss", "1.0", "--json")
    rows = {row["strategy"]: row for row in document["rows"]}
    assert code == 0
    first = next(k for k in range(4, 12) if math.fsum(quick[k - 4 : k + 1]) / 5 <= 1.0 + 1e-9)
    later = next(k for k in range(4, 20) if math.fsum(slow[k - 4 : k + 1]) / 5 <= 1.0 + 1e-9)
    assert (rows["ddp"]["steps"], rows["topk"]["steps"]) == (first + 1, later + 1) == (9, 14)
    assert rows["ddp"]["seconds"] == pytest.approx(0.9)  # the slowest rank's
    assert rows["topk"]["seconds"] == pytest.approx(0.84)
    assert (rows["ddp"]["bytes"], rows["topk"]["bytes"], rows["ddp"]["joules"]) == (900, 140, None)


def test_without_a_target_all_reach_the_loss_of_the_worst(command, trained):
    path = trained(("ddp", [1.0 - 0.05 * k for k in range(12)], 0.1, {}), ("topk", [1.0] * 12, 0.1, {}))
    _, document, _ = command("compare", path, "--by-loss", "--json")
    assert [row["target"] for row in document["rows"]] == pytest.approx([1.0, 1.0])
    assert all(row["steps"] for row in document["rows"])


def test_runs_over_other_links_are_no_launches_of_one(command, trained):
    losses = [1.0 - 0.05 * k for k in range(12)]
    path = trained(("ddp", losses, 0.1, {}), ("ddp", losses, 20.0, {}, "100mbit"))
    _, document, _ = command("compare", path, "--by-loss", "--json")
    found = {row["workload"]: round(row["seconds"] / row["steps"], 6) for row in document["rows"]}
    assert found == {"digits/small, network=None": 0.1, "digits/small, network=100mbit": 20.0}


def test_what_is_not_reached_is_said(command, trained):
    path = trained(("ddp", [1.0] * 12, 0.1, {}))
    _, out, _ = command("compare", path, "--by-loss", "--target-loss", "0.5")
    assert "not reached" in out


def test_runs_without_losses_are_refused(command, stored):
    code, _, err = command("compare", stored("none", [a_record()]), "--by-loss")
    assert code == 2
    assert "has losses" in err
    assert command("compare", stored("none", [a_record(repeat=1)]), "--target-loss", "1")[0] == 2
