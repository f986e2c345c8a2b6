"""Where a step's time goes: every case is drawn and added up by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_cases import collective, span, trace

from parbench.tracing import breakdown, overlap

US = 1e-6


def parts_us(found):
    return {name: round(seconds / US, 6) for name, seconds in found.parts.items() if seconds}


def test_a_step_without_communication_is_its_phases():
    """Step 0..100: data 0-10, forward 10-40, backward 40-80, optimizer 85-95; 80-85 and 95-100 no rule covers."""
    one = trace(
        spans=[
            span("step", 0, 100),
            span("data", 0, 10),
            span("forward", 10, 40),
            span("backward", 40, 80),
            span("optimizer", 85, 95),
        ],
        world_size=1,
    )
    found = breakdown.of(one)
    assert parts_us(found) == {"data": 10, "forward": 30, "backward": 40, "optimizer": 10, "other": 10}
    assert found.unattributed_s == pytest.approx(10 * US)
    assert found.step_s == pytest.approx(100 * US)
    assert overlap.fraction(one) is None


def exchanging(rank=0, issued=40):
    """Backward 20-80 computes 20-50 and 60-70; an all-reduce is in flight 40-90; the thread waits for it 80-90."""
    return trace(
        rank,
        spans=[
            span("step", 0, 100),
            span("forward", 0, 20),
            span("operator", 0, 20),
            span("backward", 20, 80),
            span("operator", 20, 50),
            span("operator", 60, 70),
            span("optimizer", 90, 100),
        ],
        collectives=[collective("all_reduce", issued, issued, 90)],
    )


def test_communication_counts_where_nothing_computes():
    """In flight 50; while 40-50 and 60-70 compute it is hidden, so 30 are exposed: overlap 20/50."""
    found = breakdown.of(exchanging())
    expected = {"forward": 20, "backward": 40, "exposed_comm/all_reduce/world": 30, "optimizer": 10}
    assert parts_us(found) == expected
    assert found.unattributed_s == 0
    assert overlap.fraction(exchanging()) == pytest.approx(20 / 50)


def test_what_is_exposed_before_the_other_rank_comes_is_waiting():
    """Rank 1 issues at 75: of the exposed 50-60, 70-80 and 80-90, what lies before 75 is waiting (15)."""
    found = breakdown.of(exchanging(), [exchanging(), exchanging(rank=1, issued=75)])
    assert parts_us(found)["wait"] == 15
    assert parts_us(found)["exposed_comm/all_reduce/world"] == 15


def test_a_stage_that_waits_for_its_neighbour_is_a_bubble():
    """Rank 1 waits for a message 0-60; rank 0 sends it at 50: 50 of bubble, 10 of communication."""
    sender = trace(
        0,
        spans=[span("step", 0, 100), span("operator", 0, 50)],
        collectives=[collective("send", 50, 50, 60, axis="pp", peer=1)],
    )
    receiver = trace(
        1,
        spans=[span("step", 0, 100), span("forward", 60, 100)],
        collectives=[collective("recv", 0, 0, 60, axis="pp", peer=0)],
    )
    assert parts_us(breakdown.of(receiver, [sender, receiver])) == {
        "bubble": 50,
        "exposed_comm/recv/pp": 10,
        "forward": 40,
    }


def test_a_message_is_in_flight_until_it_was_delivered_not_until_somebody_asks():
    """Rank 0 sends at 10, rank 1 has it at 20, rank 0 waits for the send at its end: 20-40 is not communication."""
    sender = trace(
        0,
        spans=[span("step", 0, 40), span("forward", 0, 40), span("operator", 0, 10)],
        collectives=[collective("send", 10, 10, 40, axis="pp", peer=1)],
    )
    receiver = trace(1, spans=[span("step", 0, 40)], collectives=[collective("recv", 5, 5, 20, axis="pp", peer=0)])
    assert parts_us(breakdown.of(sender, [receiver])) == {"forward": 30, "exposed_comm/send/pp": 10}
    assert parts_us(breakdown.of(sender)) == {"forward": 10, "exposed_comm/send/pp": 30}


def test_two_collectives_in_flight_share_what_is_exposed():
    """tp 0-30 and dp 20-50: 20 + 10/2 and 20 + 10/2."""
    one = trace(
        spans=[span("step", 0, 50)],
        collectives=[
            collective("all_reduce", 0, 0, 30, axis="tp"),
            collective("all_gather", 20, 20, 50, axis="dp", number=1),
        ],
    )
    assert parts_us(breakdown.of(one)) == {"exposed_comm/all_reduce/tp": 25, "exposed_comm/all_gather/dp": 25}


def test_the_optimizer_keeps_its_python_while_an_older_collective_is_in_flight():
    """All-reduce 0-40, issued before the optimizer (10-30, no operator): 0-10 and 30-40 exposed, 20 optimizer."""
    one = trace(
        spans=[span("step", 0, 40), span("optimizer", 10, 30)],
        collectives=[collective("all_reduce", 0, 0, 40)],
    )
    assert parts_us(breakdown.of(one)) == {"exposed_comm/all_reduce/world": 20, "optimizer": 20}


def test_a_collective_that_the_optimizer_issues_itself_is_exposed():
    """ZeRO: the optimizer (0-30) broadcasts its parameters (20-30)."""
    one = trace(
        spans=[span("step", 0, 30), span("optimizer", 0, 30), span("operator", 0, 20)],
        collectives=[collective("broadcast", 20, 20, 30)],
    )
    assert parts_us(breakdown.of(one)) == {"optimizer": 20, "exposed_comm/broadcast/world": 10}


def test_a_call_that_takes_longer_than_its_collective_is_communication():
    """c10d::allreduce_ 10-40 on the thread that steps, the backend's part 12-20 of it."""
    one = trace(
        spans=[span("step", 0, 40), span("backward", 0, 40), span("operator", 10, 40, name="c10d::allreduce_")],
        collectives=[collective("all_reduce", 10, 12, 20)],
    )
    assert parts_us(breakdown.of(one)) == {"backward": 10, "exposed_comm/all_reduce/world": 30}


def test_operators_outside_of_marks_are_forward_until_backward_begins():
    """Foreign traces: operators 0-20 and 25-30, backward nodes 30-50 and 52-60, a copy 65-70, the optimizer 80-90."""
    one = trace(
        spans=[
            span("step", 0, 100),
            span("operator", 0, 20),
            span("operator", 25, 30),
            span("backward", 30, 50),
            span("backward", 52, 60),
            span("operator", 65, 70),
            span("optimizer", 80, 90),
        ],
        world_size=1,
    )
    found = breakdown.of(one)
    # 20-25 lies between two pieces of forward, 50-52 between two of backward.
    assert parts_us(found) == {"forward": 30, "backward": 30, "optimizer": 10, "other": 30}
    assert found.unattributed_s == pytest.approx(25 * US)


def test_the_forward_of_the_next_micro_batch_is_known_by_what_autograd_recorded():
    one = trace(
        spans=[
            span("step", 0, 40),
            span("operator", 0, 10, sequence=1),
            span("backward", 10, 20),
            span("operator", 20, 30, sequence=2),
            span("backward", 30, 40),
        ],
        world_size=1,
    )
    assert parts_us(breakdown.of(one)) == {"forward": 20, "backward": 20}


def on_a_device(**launched):
    """The host issues 0-20; kernels run 10-50, NCCL 40-70."""
    return trace(
        spans=[
            span("step", 0, 80),
            span("forward", 0, 20),
            span("operator", 0, 20),
            span("operator", 10, 50, name="gemm", thread="stream 7", device=True, **launched),
        ],
        collectives=[collective("all_reduce", 20, 40, 70)],
    )


def test_kernels_of_a_device_belong_to_the_phase_that_launched_them():
    """Exposed 50-70; the kernel is forward though the host left that at 20; 70-80 nothing happens."""
    found = breakdown.of(on_a_device(launched_ns=5 * 1000))
    assert parts_us(found) == {"forward": 50, "other": 10, "exposed_comm/all_reduce/world": 20}
    assert found.unattributed_s == pytest.approx(10 * US)
    assert overlap.fraction(on_a_device()) == pytest.approx(10 / 30)


def test_kernels_of_which_the_launch_is_not_known_are_what_the_host_does_meanwhile():
    found = breakdown.of(on_a_device())
    assert parts_us(found) == {"forward": 20, "other": 40, "exposed_comm/all_reduce/world": 20}
    assert found.unattributed_s == pytest.approx(10 * US)


def test_the_engine_encodes_on_a_thread_of_its_own_while_the_step_waits():
    """The step waits 20-60; another thread encodes 20-40 and waits inside of that 30-40; in flight 30-60."""
    one = trace(
        spans=[
            span("step", 0, 60),
            span("backward", 0, 60),
            span("operator", 0, 20),
            span("wait", 20, 60),
            span("compression", 20, 40, thread="engine"),
            span("wait", 30, 40, thread="engine"),
        ],
        collectives=[collective("all_gather", 30, 30, 60, axis="dp")],
    )
    assert parts_us(breakdown.of(one)) == {"backward": 20, "compression": 10, "exposed_comm/all_gather/dp": 30}


def test_what_is_decoded_inside_of_a_wait_is_no_waiting():
    """The step waits 0-30 for a message, and decodes it itself meanwhile (10-20, an operator 12-20)."""
    one = trace(
        spans=[
            span("step", 0, 30),
            span("wait", 0, 30),
            span("compression", 10, 20),
            span("operator", 12, 20),
        ],
    )
    assert parts_us(breakdown.of(one)) == {"wait": 20, "compression": 10}


def test_a_mean_over_steps_is_of_all_traced_steps():
    one = trace(spans=[span("step", 0, 10), span("forward", 0, 10), span("step", 10, 40), span("forward", 10, 30)])
    found = breakdown.of(one)
    assert found.steps == 2
    assert parts_us(found) == {"forward": 15, "other": 5}
    assert found.step_s == pytest.approx(20 * US)


def test_a_rank_without_anything_has_no_breakdown():
    assert breakdown.of(trace()) is None


moments = st.integers(0, 200)
stretches = st.tuples(moments, moments).map(sorted).filter(lambda pair: pair[0] < pair[1])


@st.composite
def traces(draw):
    """Any nesting of marks and operators (crossing ones too), collectives anywhere, over two steps."""
    kinds = st.sampled_from(["data", "forward", "backward", "optimizer", "compression", "wait", "operator", "other"])
    spans = [span("step", 0, 90), span("step", 100, 180)]
    for kind, (start, end) in draw(st.lists(st.tuples(kinds, stretches), max_size=12)):
        name = draw(st.sampled_from(["aten::mm", "c10d::allreduce_"])) if kind == "operator" else None
        spans.append(span(kind, start, end, name=name))
    flying = draw(st.lists(st.tuples(st.sampled_from(["all_reduce", "send"]), moments, stretches), max_size=6))
    found = [
        collective(op, issued, *times, number=k, peer=1 if op == "send" else None)
        for k, (op, issued, times) in enumerate(flying)
    ]
    return trace(spans=spans, collectives=found)


@settings(max_examples=200, deadline=None)
@given(traces())
def test_parts_always_sum_to_the_step(one):
    found = breakdown.of(one)
    assert sum(found.parts.values()) == pytest.approx(found.step_s, rel=1e-9)
    assert found.step_s == pytest.approx(85 * US)
    assert all(seconds >= 0 for seconds in found.parts.values())
    assert 0 <= found.unattributed_s <= found.parts["other"] + 1e-15
    share = overlap.fraction(one)
    assert share is None or 0 <= share <= 1


def test_sleeping_on_purpose_is_other_and_somebody_knows_why():
    """Step 0..100: forward 0-20, backward 20-50, then it sleeps, as asked for, though a message is in flight."""
    one = trace(
        spans=[span("step", 0, 100), span("forward", 0, 20), span("backward", 20, 50), span("slowed", 50, 100)],
        collectives=[collective("all_reduce", 40, 40, 90)],
    )
    found = breakdown.of(one)
    assert parts_us(found) == {"forward": 20, "backward": 20, "exposed_comm/all_reduce/world": 10, "other": 50}
    assert found.unattributed_s == 0
