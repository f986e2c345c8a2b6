"""The laws bite: every planted fault is caught by its law, and only by the laws it really breaks."""

from pathlib import Path

import pytest

from parbench import Session
from parbench.conformance import check_strategy

PLANTED = Path(__file__).parent / "plugins" / "planted.py"

AGREES = "agrees with one process: "
TRIALS = (
    *("plain", "uneven last batch", "accumulation", "accumulation, uneven", "tied parameters", "no gradient"),
    "a tensor skips blocks",
)
EVERY_TRIAL = {AGREES + trial for trial in TRIALS}
SAME = "same seed, same losses"
UNDISTURBED = "variants alive together do not disturb each other"
REPLICAS = "ranks end with the same parameters"
LEARNS = "learns what a linear model can"

# fault -> the laws it breaks. A mean of means is wrong only where shares are uneven: 3 samples over 2 ranks.
TABLE = {
    "none": set(),
    "summed": EVERY_TRIAL,
    "share dropped": EVERY_TRIAL,
    "bucket forgotten": EVERY_TRIAL | {REPLICAS},
    "stale": EVERY_TRIAL,
    "mean of means": {AGREES + "uneven last batch", AGREES + "accumulation, uneven"},
    "reseeds": {"leaves nothing behind"},
    "hook left": {"leaves nothing behind"},
    "thread left": {"leaves nothing behind"},
    "bytes misreported": {"sends the bytes it says"},
    "memory misreported": {"holds the bytes it says"},
    "noisy": {SAME, UNDISTURBED, "sends the bytes it says"},
    "shared state": {UNDISTURBED},
}


@pytest.fixture(scope="module")
def session():
    with Session(world_size=2, plugins=[PLANTED]) as ranks:
        yield ranks


@pytest.mark.parametrize("fault", TABLE)
def test_a_fault_is_caught_by_its_law(session, fault):
    verdict = check_strategy(f"planted(fault='{fault}')", 2, session=session)
    assert {finding.law for finding in verdict.broken} == TABLE[fault], verdict.broken


def test_a_strategy_that_cannot_close_ends_its_ranks_with_its_own_error():
    from parbench.conformance.sweep import strategy_verdicts
    from parbench.registry import Registry

    wanted = ["planted(fault='raises in close')", "planted", "planted(fault='no such')"]
    verdicts = list(strategy_verdicts(wanted, [2], Registry([PLANTED])))
    assert "close fails" in verdicts[0].broken[0].detail
    assert verdicts[1].passed, "a strategy after one that broke the ranks gets new ones"
    assert "no such" in verdicts[2].broken[0].detail
