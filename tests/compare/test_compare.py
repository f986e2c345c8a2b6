"""Comparisons of records made by hand: what is held against what, what is refused, what is never ranked, and why."""

import msgspec
import pytest
from compare_cases import a_record, launches

from parbench.comparable import differs
from parbench.compare import compare_paths, compare_strategies
from parbench.errors import CheckFailed, UsageError
from parbench.observed import Traffic
from parbench.observed_trace import Keeping, RankTraced, Traced
from parbench.record import Agreement, Metric, Warned

SLOW, FAST = [0.02, 0.0203, 0.0199, 0.0201, 0.0202], [0.01, 0.0102, 0.0099, 0.01, 0.0101]


def metric(found, strategy, name="step_time_s"):
    (cell,) = [one for one in found.cells if one.strategy == strategy]
    (one,) = [m for m in cell.metrics if m.metric == name]
    return one


def paths(old, new, **more):
    return compare_paths(old, new, old_path="before", new_path="after", **more)


def test_a_strategy_twice_as_slow_as_the_reference_is_slower_in_time_and_rate():
    records = [*launches(FAST, strategy="single", world_size=1), *launches(SLOW, strategy="ddp")]
    found = compare_strategies(records, path="results")
    time, rate = metric(found, "ddp"), metric(found, "ddp", "samples_per_s")
    assert (time.word, rate.word) == ("slower", "slower")
    assert time.ratio == pytest.approx(2, rel=0.02)
    assert rate.ratio == pytest.approx(0.5, rel=0.02)
    assert time.low < 2 < time.high
    assert found.cells[1].reference == "single at 1 rank"
    assert found.cells[0].reference == ""


def test_the_header_says_at_which_budget_strategies_are_compared():
    records = [*launches(FAST, strategy="single", world_size=1), *launches(SLOW, strategy="ddp")]
    assert compare_strategies(records, path="r").fixed == (
        "digits/small: fixed global batch of 64 samples per step, fp32, accumulation 1, seed 0",
    )


def test_the_reference_can_be_named_and_must_be_there():
    records = [*launches(FAST, strategy="fsdp"), *launches(SLOW, strategy="ddp")]
    assert metric(compare_strategies(records, path="r", reference="ddp"), "fsdp").word == "faster"
    with pytest.raises(UsageError, match="did you mean 'fsdp'"):
        compare_strategies(records, path="r", reference="fsd")


def test_a_reference_with_as_many_ranks_is_preferred():
    records = [
        *launches(FAST, strategy="ddp", world_size=2),
        *launches(FAST, strategy="ddp", world_size=4),
        *launches(SLOW, strategy="fsdp", world_size=4),
    ]
    found = compare_strategies(records, path="r", reference="ddp")
    assert [cell.reference for cell in found.cells] == ["", "", "ddp at 4 ranks"]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"status": "failed"}, "failed: rank 1 raised"),
        ({"numerics": "nonfinite at step 3"}, "diverged: nonfinite at step 3"),
        ({"agreement": Agreement(declared="closely", passed=False, reason="loss off by 1")}, "loss off by 1"),
        ({"agreement": Agreement(declared="closely", passed=None)}, "not checked"),
        ({"agreement": Agreement(declared="on average", passed=True)}, "compare by loss"),
    ],
)
def test_what_trains_otherwise_or_failed_is_shown_and_not_ranked(broken, why):
    records = [*launches(FAST, strategy="single", world_size=1), *launches(SLOW, strategy="ddp", **broken)]
    found = compare_strategies(records, path="r")
    cell = found.cells[1]
    assert why in cell.unranked[0]
    assert not {one.verdict for one in cell.metrics} & {"better", "worse", "same"}


def test_one_strategy_at_two_times_is_compared_even_if_it_trains_in_its_own_way():
    own = {"agreement": Agreement(declared="differently", passed=True)}
    assert metric(paths(launches(FAST, **own), launches(SLOW, **own)), "ddp").verdict == "worse"


def test_a_suspect_time_is_not_ranked_and_its_bytes_still_are():
    sent = {"traffic_bytes_per_step": Metric(value=100.0, unit="bytes", better="lower")}
    suspect = {"step_time_s": Metric(value=0.02, unit="s", better="lower", quality="suspect", reason="too short")}
    records = [*launches(FAST, metrics=sent), *launches(SLOW, strategy="fsdp", metrics=sent | suspect)]
    found = compare_strategies(records, path="r", reference="ddp")
    assert (metric(found, "fsdp").verdict, metric(found, "fsdp").why) == ("not ranked", "new is suspect: too short")
    assert metric(found, "fsdp", "traffic_bytes_per_step").verdict == "same"


def test_rounds_that_took_turns_cancel_what_disturbed_both():
    shaken = [[x * s for x in (0.01, 0.05, 0.02, 0.08, 0.01, 0.06, 0.03, 0.01)] for s in (1, 3, 0.5, 2, 1, 4)]
    old = [a_record(w, repeat=k, together=["fsdp"]) for k, w in enumerate(shaken)]
    new = [a_record([1.1 * x for x in w], strategy="fsdp", repeat=k, together=["ddp"]) for k, w in enumerate(shaken)]
    together = metric(compare_strategies([*old, *new], path="r", reference="ddp"), "fsdp")
    assert (together.verdict, together.ratio) == ("worse", pytest.approx(1.1))
    alone = [msgspec.structs.replace(r, launch=r.launch | {"interleaved_with": []}) for r in (*old, *new)]
    assert metric(compare_strategies(alone, path="r", reference="ddp"), "fsdp").verdict == "inconclusive"


@pytest.mark.parametrize(
    ("changed", "told", "word"),
    [
        ({"fingerprint": "other"}, "machine machine against other", "machine"),
        ({"backend": "nccl"}, "backend gloo against nccl", "backend"),
        ({"global_batch_size": 128}, "global_batch_size 64 against 128", "global_batch_size"),
        ({"precision": "bf16"}, "precision fp32 against bf16", "precision"),
    ],
)
def test_what_is_not_comparable_is_refused_unless_it_is_meant(changed, told, word):
    old, new = launches(FAST), launches(SLOW, **changed)
    with pytest.raises(CheckFailed, match=told) as refused:
        paths(old, new)
    assert f"--allow {word}" in str(refused.value)
    assert metric(paths(old, new, allow=[word]), "ddp").verdict == "worse"


def test_paced_time_is_not_held_against_real_time():
    paced = {"step_time_s": Metric(value=0.01, unit="s", better="lower", quality="paced")}
    with pytest.raises(CheckFailed, match="compute real against paced"):
        paths(launches(FAST), launches(SLOW, metrics=paced))


def test_an_unknown_word_for_allow_is_refused_with_the_near_one():
    with pytest.raises(UsageError, match="did you mean 'machine'"):
        paths(launches(FAST), launches(SLOW), allow=["machin"])


def test_paths_without_a_cell_in_common_are_refused():
    with pytest.raises(UsageError, match="no cell"):
        paths(launches(FAST), launches(SLOW, strategy="fsdp"))


def test_what_differs_besides_is_said_once_for_all_cells():
    old = [*launches(FAST, facts={"torch": "2.12"}), *launches(FAST, strategy="fsdp", facts={"torch": "2.12"})]
    new = [
        *launches(FAST, facts={"torch": "2.13"}),
        *launches(FAST, strategy="fsdp", facts={"torch": "2.13"}, steps=50),
    ]
    found = paths(old, new)
    assert [(one.what, one.old, one.new) for one in found.differs] == [("torch", "2.12", "2.13")]
    assert [one.what for one in found.cells[1].differs] == ["steps"]


def test_load_is_no_difference_and_a_variable_is():
    one, two = (a_record(facts={"load_1min": x}) for x in (0.1, 9.0))
    assert differs([one], [two]) == []
    other = msgspec.structs.replace(
        two, environment=msgspec.structs.replace(two.environment, variables={"OMP_NUM_THREADS": "4"})
    )
    assert [(d.what, d.old, d.new, d.forbids) for d in differs([one], [other])] == [
        ("OMP_NUM_THREADS", "none", "4", None)
    ]


def test_cells_on_one_side_only_are_named():
    found = paths(
        [*launches(FAST), *launches(FAST, strategy="gone")], [*launches(FAST), *launches(FAST, strategy="fresh")]
    )
    assert found.missing == ("gone at 2 on digits/small",)
    assert found.added == ("fresh at 2 on digits/small",)


def test_a_metric_that_is_lost_is_missing_not_the_same():
    had = {"peak_memory_bytes": Metric(value=1.0, unit="bytes", better="lower")}
    lost = {"peak_memory_bytes": Metric.unavailable("bytes", "lower", "no meter")}
    one = metric(paths(launches(FAST, metrics=had), launches(FAST, metrics=lost)), "ddp", "peak_memory_bytes")
    assert (one.verdict, one.why) == ("missing", "new: no meter")


def test_a_machine_that_changed_while_measuring_gives_no_verdict():
    disturbed = [a_record([0.02] * 5 + [0.05 + 0.001 * k] * 5, repeat=k) for k in range(5)]
    one = metric(paths(launches(FAST), disturbed), "ddp")
    assert one.verdict == "inconclusive"
    assert "new changed by more than 10 %" in one.why


def test_many_comparisons_need_smaller_chances():
    """At 4 launches a side the chance is 2/70 alone, and with nine cells that did not change it is no news."""
    alike = [x * w for x in FAST[:4] for w in (1.0,)]
    old, new = launches(alike), launches([1.1 * x for x in alike])
    assert metric(paths(old, new), "ddp").verdict == "worse"
    crowd = [f"ddp(bucket_cap_mb={k})" for k in range(1, 10)]
    same = [[0.01, 0.0101, 0.0099, 0.01005], [0.0101, 0.01, 0.01004, 0.0099]]
    sides = [[r for name in crowd for r in launches(one, strategy=name)] for one in same]
    assert metric(paths([*old, *sides[0]], [*new, *sides[1]]), "ddp").verdict == "inconclusive"


def test_numbers_that_cannot_be_chance_are_no_comparisons_to_correct_for():
    seen = {f"bytes{k}": Metric(value=5.0, unit="bytes", better="lower") for k in range(20)}
    old, new = launches(FAST[:4], metrics=seen), launches([1.1 * x for x in FAST[:4]], metrics=seen)
    assert metric(paths(old, new), "ddp").verdict == "worse"


def test_the_slow_rank_is_named():
    old = launches(FAST, world_size=4)
    new = [a_record([0.013] * 8, world_size=4, repeat=k, lag_s=0.003) for k in range(5)]
    (cell,) = paths(old, new).cells
    assert cell.because[0].startswith("rank 3 ends 100% of the rounds last, 3 ms after the others")


def test_parts_of_the_breakdown_explain_first():
    parts = {"forward": 0.004, "exposed_comm/all_reduce/dp": 0.001, "other": 0.001}
    more = parts | {"exposed_comm/all_reduce/dp": 0.0095, "forward": 0.0055}
    old, new = (
        [msgspec.structs.replace(r, breakdown=b) for r in launches(seconds)]
        for seconds, b in ((FAST, parts), (SLOW, more))
    )
    (cell,) = paths(old, new).cells
    assert cell.because == ("of +10 ms a traced step: exposed_comm/all_reduce/dp +8.5 ms (85%), forward +1.5 ms (15%)",)


def test_who_others_wait_for_in_traced_steps_explains_waiting():
    def trace(delayed_s):
        keeping = (
            Keeping(rank=1, collectives=10, last=9, delayed_s=delayed_s),
            Keeping(rank=0, collectives=10, last=1),
        )
        return Traced(
            steps=2, ranks=(RankTraced(rank=0, step_s=0.02), RankTraced(rank=1, step_s=0.02)), keeping=keeping
        )

    parts = {"forward": 0.004, "wait": 0.001}
    old, new = (
        [msgspec.structs.replace(r, breakdown=b, traced=trace(delayed_s)) for r in launches(seconds)]
        for seconds, b, delayed_s in ((FAST, parts, 0.001), (SLOW, parts | {"wait": 0.011}, 0.02))
    )
    (cell,) = paths(old, new).cells
    assert cell.because[:2] == (
        "of +10 ms a traced step: wait +10 ms (100%)",
        "in traced steps rank 1 comes last to 90% of the collectives and lets the others wait 10 ms a step: "
        "what they call wait is time that it needs",
    )
    (cell,) = paths(new, old).cells
    assert not any("comes last" in sentence for sentence in cell.because)


def test_bytes_and_new_warnings_explain_too():
    old = [msgspec.structs.replace(r, traffic=Traffic(rank=0, sent={"all_reduce": 100.0})) for r in launches(FAST)]
    warned = Warned(code="oversubscribed", message="4 ranks on 2 cores")
    new = [
        msgspec.structs.replace(r, traffic=Traffic(rank=0, sent={"all_gather": 200.0}), warnings=(warned,))
        for r in launches(SLOW)
    ]
    told = paths(old, new).cells[0].because
    assert told[0] == "bytes sent in a step by the rank that sends most: all_reduce 100 -> 0, all_gather 0 -> 200"
    assert told[1] == "warned of here only: oversubscribed (4 ranks on 2 cores)"
    assert "no breakdown" in told[2]


def test_strong_scaling_is_t1_over_n_tn():
    records = [
        *launches([0.08] * 2, world_size=1),
        *launches([0.05] * 2, world_size=2),
        *launches([0.04] * 2, world_size=4),
    ]
    strong = {one.ranks: one for one in compare_strategies(records, path="r").scaling}
    assert strong[4].speed_up == pytest.approx(2)
    assert strong[4].efficiency == pytest.approx(0.5)
    assert strong[4].overhead_s == pytest.approx(4 * 0.04 - 0.08, rel=0.01)
    assert (strong[2].kind, strong[2].base) == ("strong", "ddp at 1 rank")


def test_weak_scaling_is_t1_over_tn():
    records = [
        *launches([0.05] * 2, world_size=1, global_batch_size=32),
        *launches([0.0625] * 2, world_size=2, global_batch_size=64),
    ]
    (_, two) = compare_strategies(records, path="r").scaling
    assert (two.kind, two.efficiency) == ("weak", pytest.approx(0.8))
    assert two.speed_up == pytest.approx(1.6)


def test_the_world_size_from_which_another_strategy_wins_is_said():
    records = [
        *launches([0.05] * 2, strategy="ddp", world_size=2),
        *launches([0.06] * 2, strategy="fsdp", world_size=2),
        *launches([0.05] * 2, strategy="ddp", world_size=4),
        *launches([0.03] * 2, strategy="fsdp", world_size=4),
    ]
    notes = compare_strategies(records, path="r", reference="ddp").notes
    assert "from 4 ranks fsdp has the shortest step time, at 2 it is ddp" in notes
