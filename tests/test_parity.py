"""Parity: a strategy that does not compute what one process does is found out and never ranked."""

import pytest

from parbench.agreement import OWN, SGD, agreement
from parbench.launch.messages import ParityFacts
from plugin_sources import strategy, wrong_reductions


@pytest.mark.usefixtures("no_orphans")
@pytest.mark.parametrize(("workload", "optimizer"), [("digits", "SGD"), ("text", "AdamW")])
def test_wrong_reductions_are_found_under_any_optimizer_and_never_ranked(parbench, tmp_path, workload, optimizer):  # C5
    plugins = wrong_reductions(tmp_path)
    named = [part for name, path in plugins.items() for part in ("--plugin", path, "-s", name)]
    done = parbench(
        workload, "--size", "smoke", *named, "-s", "ddp", "-s", "single", "--steps", 5, "--warmup", 1, "--json"
    )
    assert done.code == 0, done.err
    wrong = {"sums", "drops_a_share", "a_step_stale"}
    for name, record in done.records.items():
        assert record["agreement"]["passed"] is (name not in wrong), (optimizer, name, record["agreement"])
        assert ("disagrees" in [w["code"] for w in record["warnings"]]) is (name in wrong)
    for cell in done.document["cells"]:
        assert cell["rankable"] is (cell["strategy"] not in wrong)


@pytest.mark.usefixtures("no_orphans")
def test_what_was_not_checked_is_not_ranked(parbench):
    done = parbench(
        "digits", "--size", "smoke", "-s", "ddp", "--steps", 5, "--warmup", 1, "--parity-steps", 0, "--json"
    )
    assert done.code == 0
    assert done.records["ddp"]["agreement"]["passed"] is None
    assert "left out" in done.records["ddp"]["agreement"]["reason"]
    assert [cell["rankable"] for cell in done.document["cells"]] == [False]


def facts(*, losses=(1.0, 0.5), update_error=0.0, problem=None, optimizer=SGD, judge=True):
    if not judge:
        return ParityFacts(optimizer=optimizer, losses=losses, problem=problem)
    return ParityFacts(
        optimizer=optimizer,
        losses=losses,
        reference=(1.0, 0.5),
        parameter_difference=1e-9,
        update_error=update_error,
        problem=problem,
    )


@pytest.mark.parametrize(
    ("declared", "ranks", "bf16", "reason"),
    [
        ("closely", [facts()], False, None),
        ("closely", [facts(losses=(1.0, 0.50001))], False, None),
        ("closely", [facts(losses=(1.0, 0.501))], False, "losses differ"),
        ("closely", [facts(losses=(1.0, 0.501))], True, None),
        ("exactly", [facts(losses=(1.0, 0.50001))], False, "losses differ"),
        ("exactly", [facts(losses=(1.0, 0.50001))], True, "losses differ"),
        ("closely", [facts(update_error=0.01)], False, "updates differ"),
        ("closely", [facts(update_error=0.01, optimizer=OWN)], False, None),
        ("closely", [facts(update_error=0.1, optimizer=OWN)], False, "updates differ"),
        ("differently", [facts(losses=(9.0, 9.0), update_error=9.0)], False, None),
        ("on average", [facts(losses=(9.0, 9.0), update_error=9.0)], False, None),
        ("differently", [facts(problem="a name is missing")], False, "a name is missing"),
        # Pipelines see the loss on one rank only; the mean is over those that see one.
        ("closely", [facts(losses=(None, None)), facts(judge=False)], False, None),
        ("closely", [facts(losses=(0.9, 0.4)), facts(losses=(1.1, 0.6), judge=False)], False, None),
        ("closely", [facts(losses=(None, None)), facts(losses=(None, None), judge=False)], False, "missing"),
        ("closely", [facts(), facts(problem="the loss of step 1 is not finite", judge=False)], False, "step 1"),
    ],
)
def test_claims_are_judged_by_losses_and_updates_of_all_ranks(declared, ranks, bf16, reason):
    found = agreement(declared, [[rank] for rank in ranks], 2, "bf16" if bf16 else "fp32")
    assert found.passed is (reason is None), found.reason
    assert (reason is None and found.reason is None) or reason in found.reason


def test_a_compiler_may_move_the_last_bits_of_what_is_exact_without_it():
    """It fuses operations, which adds in another order; by how much is bounded as for what agrees closely."""
    for losses, passed in (((1.0, 0.500001), True), ((1.0, 0.501), False)):
        assert agreement("exactly", [[facts(losses=losses)]], 2, "fp32", compiled=True).passed is passed
        assert agreement("exactly", [[facts(losses=losses)]], 2, "fp32").passed is False


@pytest.mark.usefixtures("no_orphans")
def test_a_strategy_that_fails_while_it_is_compared_is_told_with_what_it_raised(parbench, tmp_path):
    plugin = strategy(tmp_path, "fails_twice", before="raise KeyError('first')", close="raise KeyError('second')")
    done = parbench("digits", "--size", "smoke", "-s", "fails_twice", "--plugin", plugin, "--steps", 5, "--json")
    assert done.code == 4
    assert "KeyError: 'first'" in done.err
