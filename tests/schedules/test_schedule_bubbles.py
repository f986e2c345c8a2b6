"""Timelines are what an independent simulation finds, and idle as long as the papers' formulas say."""

from __future__ import annotations

from fractions import Fraction

import schedule_simulation as simulation
from hypothesis import assume, given
from hypothesis import strategies as st
from schedule_cases import (
    FITTED,
    INTERLEAVED,
    REGISTRY,
    Case,
    alike,
    cases,
    costs,
    fit,
    quick,
)

from parbench.schedule import Costs
from parbench.timeline import idle_fraction, timeline


def measured(case: Case, cost: Costs) -> Fraction:
    return idle_fraction(timeline(case.schedule, case.ranks, case.microbatches, cost))


def closed(case: Case, cost: Costs) -> Fraction | None:
    return case.schedule.bubble(case.ranks, case.microbatches, cost)


def work(case: Case, cost: Costs) -> Fraction:
    """What every rank has to do."""
    return case.microbatches * case.chunks * (cost.forward + cost.input_gradient + cost.weight_gradient)


def share(idle: Fraction, case: Case, cost: Costs) -> Fraction:
    return idle / (idle + work(case, cost))


@quick
@given(cases(), costs)
def test_timelines_are_those_of_a_simulation_by_events(case: Case, cost: Costs) -> None:
    found = timeline(case.schedule, case.ranks, case.microbatches, cost)
    plain = [[((a.action.kind, a.action.microbatch, a.action.chunk), a.start, a.end) for a in line] for line in found]
    durations = {"F": cost.forward, "I": cost.input_gradient, "W": cost.weight_gradient}
    durations["B"] = durations["I"] + durations["W"]
    expected = simulation.by_events(case, lambda kind: durations[kind])
    assert plain == expected
    idle = simulation.idle_time(expected)
    assert idle_fraction(found) == share(Fraction(idle), case, cost)
    end = max(line[-1][2] for line in expected)
    assert idle_fraction(found, barrier=True) == 1 - work(case, cost) / end


@quick
@given(cases(), costs)
def test_a_closed_form_is_never_wrong(case: Case, cost: Costs) -> None:
    form = closed(case, cost)
    assert form is None or form == measured(case, cost)


@quick
@given(cases(("gpipe", "1f1b", "eager-1f1b", "dapple-pa", "dapple-pb")), costs)
def test_whole_backwards_leave_p_minus_1_of_m_plus_p_minus_1_idle(case: Case, cost: Costs) -> None:
    """GPipe 2.3; Megatron 2.2.1 gives (p-1)/m relative to the work. Early backward moves work, not its end."""
    p, m = case.ranks, case.microbatches
    assert measured(case, cost) == closed(case, cost) == Fraction(p - 1, m + p - 1)


@quick
@given(cases(FITTED), costs)
def test_dapple_is_as_idle_as_long_as_memory_allows_each_rank_to_be_ahead_of_the_next(case: Case, cost: Costs) -> None:
    p, m, most = case.ranks, case.microbatches, fit(case.text)
    wanted = p if case.text.startswith("dapple-pa") else 2 * p - 2
    enough = most >= min(wanted, m)
    assert (closed(case, cost) is not None) == (enough or p == 1)
    if enough:
        assert measured(case, cost) == Fraction(p - 1, m + p - 1)
    else:
        assert measured(case, cost) >= Fraction(p - 1, m + p - 1)


@quick
@given(cases(INTERLEAVED), costs)
def test_interleaving_divides_the_bubble(case: Case, cost: Costs) -> None:
    """Megatron 2.2.2: (p-1)/(m v) relative to the work."""
    p, mv = case.ranks, case.microbatches * case.chunks
    relative = Fraction(p - 1, mv)
    assert measured(case, cost) == closed(case, cost) == relative / (1 + relative) == Fraction(p - 1, mv + p - 1)


@quick
@given(cases(("zb-h1",)), costs)
def test_zb_h1_is_idle_for_f_plus_i_minus_w(case: Case, cost: Costs) -> None:
    """Zero Bubble 2.3: (p-1)(T_F + T_B - T_W), their B being I."""
    full = case.microbatches >= case.ranks and cost.forward >= cost.weight_gradient
    assert (closed(case, cost) is not None) == (full or case.ranks == 1)
    assume(full)
    idle = (case.ranks - 1) * (cost.forward + cost.input_gradient - cost.weight_gradient)
    assert measured(case, cost) == closed(case, cost) == share(idle, case, cost)


@quick
@given(cases(("zb-h2",)), costs)
def test_zb_h2_is_idle_for_f_plus_i_minus_2w(case: Case, cost: Costs) -> None:
    """Zero Bubble 2.3: (p-1)(T_F + T_B - 2 T_W)."""
    idle = (case.ranks - 1) * (cost.forward + cost.input_gradient - 2 * cost.weight_gradient)
    full = case.microbatches >= 2 * case.ranks - 1 and cost.forward >= cost.weight_gradient and idle >= 0
    assert (closed(case, cost) is not None) == (full or case.ranks == 1)
    assume(full)
    assert measured(case, cost) == closed(case, cost) == share(idle, case, cost)


@quick
@given(st.integers(1, 7), st.integers(0, 9), alike)
def test_zero_bubble_schedules_have_none_where_all_three_take_equally_long(p: int, more: int, cost: Costs) -> None:
    """Zero Bubble 2.2 and 6; ZB-H1 has a third of 1F1B's, 2.1."""
    m = 2 * p - 1 + more
    for text in ("zb-h2", "zbv"):
        assert measured(Case(text, p, m), cost) == closed(Case(text, p, m), cost) == 0
        lines = timeline(REGISTRY.resolve("schedule", text), p, m, cost)
        # A rank starts a forward later than the one before, and the step ends as much later.
        assert [line[0].start for line in lines] == [rank * cost.forward for rank in range(p)]
    of_1f1b = (p - 1) * cost.total
    assert measured(Case("zb-h1", p, m), cost) == share(of_1f1b / 3, Case("zb-h1", p, m), cost)


@quick
@given(cases(("zbv",)), costs)
def test_zbv_has_a_closed_form_only_where_the_paper_has_one(case: Case, cost: Costs) -> None:
    equal = cost.forward == cost.input_gradient == cost.weight_gradient
    stated = case.ranks == 1 or (equal and case.microbatches >= 2 * case.ranks - 1)
    assert closed(case, cost) == (0 if stated else None)
    assert measured(case, cost) >= 0


@quick
@given(cases(("dualpipev",)), costs)
def test_dualpipev_one_after_the_other_is_idle_for_f_plus_i_minus_w(case: Case, cost: Costs) -> None:
    f, i, w = cost.forward, cost.input_gradient, cost.weight_gradient
    between = w <= i <= f <= i + w
    assert (closed(case, cost) is not None) == (between or case.ranks == 1)
    assume(between)
    assert measured(case, cost) == closed(case, cost) == share((case.ranks - 1) * (f + i - w), case, cost)


@quick
@given(cases(("dualpipev",)), st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))
def test_dualpipev_in_overlapped_pairs_is_as_idle_as_deepseek_says(case: Case, f: int, w: int, saved: int) -> None:
    """DualPipe's table: (PP/2 - 1)(F&B + B - 3W) for PP = 2p stages, where F = I: a pair gives both results at its end.

    It is the idle time of the rank that has least to do: ranks have unequally many pairs, and so save unequally much.
    """
    assume(w <= f)
    back = f + w
    pair = f + back - min(saved, f)
    found = simulation.in_pairs(case, {"F": f, "I": f, "W": w, "B": back}, pair)
    assert found == (case.ranks - 1) * (pair + back - 3 * w)


@quick
@given(st.integers(2, 6), st.integers(1, 16), costs, st.fractions(0, 2, max_denominator=6))
def test_eager_1f1b_hides_transfers_that_1f1b_waits_for(p: int, m: int, cost: Costs, slow: Fraction) -> None:
    """AlpaComm's reason for it: one more forward between a result and its use. It never takes longer."""

    def length(text: str) -> Fraction:
        durations = {"F": cost.forward, "B": cost.input_gradient + cost.weight_gradient}
        lines = simulation.by_events(Case(text, p, m), lambda kind: durations[kind], slow * cost.forward)
        return Fraction(max(line[-1][2] for line in lines))

    assert length("eager-1f1b") <= length("1f1b")
