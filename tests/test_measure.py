"""One launch: what it does in which order, and what is left to do when one of its cases breaks it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import msgspec
import pytest

from parbench.cases import Case, Measured
from parbench.errors import MissingError
from parbench.facts import Inspected
from parbench.grouping import grouped
from parbench.launch.failure import RankLost, RanksStuck, Stopped
from parbench.launch.messages import Judged, StepsDone, TraceDone
from parbench.measure import Launch
from parbench.pace import round_steps, steady, warm_up_steps, whole_periods
from parbench.record import Agreement, Failure
from parbench.session import RoundSamples
from parbench.spec import RunSpec

NOWHERE = Path("nothing-is-written-here")


def case(strategy, *, cell=0, repeat=0, **changes):
    spec = RunSpec(workload="digits", strategy=strategy, **{"steps": 10, "warmup": 2, **changes})
    return Case(cell=cell, repeat=repeat, spec=spec, spec_id=strategy)


def samples(first, steps, seconds=0.01):
    done = StepsDone(seconds=(seconds,) * steps, losses=(1.0,) * steps, samples=(64,) * steps, wall_s=seconds * steps)
    return RoundSamples(first_step=first, samples=done.samples, losses=done.losses, ranks=(done,), nonfinite=())


class FakeSession:
    """A session without ranks that writes down what it is told; `breaks` says who fails at what, and how."""

    def __init__(self, breaks=None, seconds=lambda strategy, step: 0.01, unsupported=(), period=1):
        self.log = []
        self.breaks = breaks or {}
        self.seconds = seconds
        self.unsupported = unsupported
        self.period = period
        self.chosen = {}
        self.placement = SimpleNamespace(gpus=0)
        self.killed = False
        self.ranks = SimpleNamespace(
            kind="fake",
            pids=[],
            world_size=2,
            device_names=("cpu", "cpu"),
            ready_s=1.0,
            logs=lambda: {"log/rank0.log": "/l"},
        )

    def note(self, what, strategy=""):
        self.log.append((what, strategy))
        error = self.breaks.get((what, strategy))
        if error is not None:
            raise error

    def add(self, spec, *, refuse=True):
        self.note("add", spec.strategy)
        return FakeVariant(self, spec)

    def call(self, command):
        return []

    def close(self):
        self.note("close")

    def kill(self):
        self.killed = True


class FakeVariant:
    agrees = "closely"
    unit, units_per_sample, parameters, build_s, first_step_s = "samples", 1, 10, 0.25, 0.5
    shards, compile_s = (), 0.0

    def __init__(self, session, spec):
        self.session, self.strategy, self.taken = session, spec.strategy, 0
        self.period = session.period
        self.impossible = False
        self.unsupported = "no" if spec.strategy in session.unsupported else None

    def parity(self, steps):
        self.session.note("parity", self.strategy)
        return Agreement(declared="closely", passed=True)

    def round(self, steps):
        self.session.note("round", self.strategy)
        found = samples(self.taken, steps, self.session.seconds(self.strategy, self.taken))
        self.taken += steps
        return found

    @property
    def steps_taken(self):
        return self.taken

    def held_out(self):
        self.session.note("held_out", self.strategy)
        return Judged(values={"loss": 1.0})

    def inspect(self):
        self.session.note("inspect", self.strategy)
        return (Inspected(sent={"all_reduce": 8.0}), Inspected(sent={"all_reduce": 9.0}))

    def trace(self, steps, folder, *, execution=False):
        self.session.note("trace", self.strategy)
        return (TraceDone(reason="a fake has no profiler"),)


def lost(kind="exception"):
    return RankLost(Failure(rank=1, step=3, kind=kind, message="boom"), 2, {"log/rank1.log": "/r1"})


def stuck():
    return RanksStuck(Failure(rank=1, step=3, kind="hang", message="stood still"), 2)


def launch(session, *cases):
    measured = [Measured(case=one) for one in cases]
    phases = []
    again = Launch(lambda: session, measured, lambda m, p: phases.append(p), lambda m: None, NOWHERE).run()
    return measured, again, phases


def test_parity_then_a_common_warm_up_then_rounds_and_held_out_data_once_enough_is_trained():
    session = FakeSession()
    measured, again, _ = launch(session, case("a"), case("b"))
    assert not again
    assert not session.killed
    kinds = [what for what, _ in session.log]
    # Ten steps are asked for, two warm up: each is judged after its second round of five, when it has trained twelve.
    assert kinds == ["add"] * 2 + ["parity"] * 2 + ["round"] * 4 + ["round", "held_out"] * 2 + ["inspect"] * 2 + [
        "trace",
        "trace",
        "close",
    ]
    assert [who for what, who in session.log if what == "round"][:2] == ["a", "b"]
    for m in measured:
        assert (m.status, m.steps_done, m.warm_up.steps, len(m.rounds)) == ("complete", 10, 2, 2)
        assert m.startup_s == 1.75
        assert m.logs == {"log/rank0.log": "/l"}
        assert m.held_out.values == {"loss": 1.0}
        assert len(m.interleaved_with) == 1


def test_rounds_meet_disturbances_alike_and_in_an_order_that_repeats():
    def order(repeat):
        session = FakeSession()
        launch(session, *(case(name, repeat=repeat, steps=100) for name in "abc"))
        return [who for what, who in session.log if what == "round"][3:]

    rounds = order(0)
    laps = [rounds[k : k + 3] for k in range(0, len(rounds), 3)]
    assert all(sorted(lap) == ["a", "b", "c"] for lap in laps)
    assert len({tuple(lap) for lap in laps}) > 2
    assert rounds == order(0) != order(1)


@pytest.mark.parametrize(("error", "status", "code"), [(lost(), "failed", 4), (stuck(), "timeout", 5)])
@pytest.mark.parametrize("at", ["add", "parity", "round", "held_out"])
def test_who_breaks_a_launch_ends_and_the_others_are_taken_up_again(error, status, code, at):
    session = FakeSession({(at, "bad"): error})
    measured, again, _ = launch(session, case("a"), case("bad"), case("b"))
    assert [m.case.spec.strategy for m in again] == ["a", "b"]
    assert session.killed
    bad = measured[1]
    assert (bad.status, bad.exit_code, bad.failure) == (status, code, error.failure)
    assert bad.logs == error.logs


def test_who_runs_out_of_memory_beside_others_gets_a_launch_of_its_own():
    measured = [Measured(case=case(name)) for name in ("a", "b")]
    together = Launch(
        lambda: FakeSession({("round", "b"): lost("oom")}), measured, lambda m, p: None, lambda m: None, NOWHERE
    )
    assert together.run() == measured
    assert together.too_large
    (one,), again, _ = launch(FakeSession({("round", "b"): lost("oom")}), case("b"))
    assert not again
    assert (one.status, one.exit_code) == ("oom", 4)


def test_ranks_that_never_came_up_end_every_case_with_their_logs():
    def never():
        raise lost()

    measured = [Measured(case=case("a")), Measured(case=case("b"))]
    assert Launch(never, measured, lambda m, p: None, lambda m: None, NOWHERE).run() == []
    assert [m.status for m in measured] == ["failed", "failed"]
    assert measured[0].logs == {"log/rank1.log": "/r1"}


def test_what_is_missing_at_the_start_of_a_launch_ends_its_cases_and_not_the_sweep():
    def gone():
        raise MissingError("the kernel has no tbf; load sch_tbf")

    measured = [Measured(case=case("a")), Measured(case=case("b"))]
    assert Launch(gone, measured, lambda m, p: None, lambda m: None, NOWHERE).run() == []
    assert {(m.status, m.exit_code, m.reason) for m in measured} == {
        ("unsupported", 3, "the kernel has no tbf; load sch_tbf")
    }


def test_a_failure_while_leaving_keeps_what_was_measured():
    measured, again, _ = launch(FakeSession({("close", ""): lost()}), case("a"))
    assert not again
    assert (measured[0].status, measured[0].exit_code, measured[0].steps_done) == ("complete", 0, 10)
    assert "boom" in measured[0].teardown
    assert measured[0].logs == {"log/rank1.log": "/r1"}


def test_a_stop_marks_what_was_not_finished_and_is_passed_on():
    session = FakeSession({("held_out", "a"): Stopped(130)})
    measured = [Measured(case=case("a")), Measured(case=case("b"))]
    with pytest.raises(Stopped):
        Launch(lambda: session, measured, lambda m, p: None, lambda m: None, NOWHERE).run()
    assert session.killed
    assert [(m.status, m.exit_code) for m in measured] == [("interrupted", 130)] * 2
    assert "10 of 10 steps" in measured[0].reason


def test_what_is_unsupported_is_left_out_and_the_rest_goes_on():
    measured, again, _ = launch(FakeSession(unsupported={"no"}), case("no"), case("a"))
    assert not again
    assert [(m.status, m.exit_code) for m in measured] == [("unsupported", 0), ("complete", 0)]


def test_warm_up_goes_on_until_all_are_steady():
    def falling(strategy, step):
        return 0.01 if strategy == "a" else max(0.01, 0.1 - 0.01 * (step // 5))

    session = FakeSession(seconds=falling)
    measured, _, _ = launch(session, case("a", warmup=None), case("b", warmup=None))
    laps = [len(m.warm_up_rounds) for m in measured]
    assert laps[0] == laps[1] == 10
    measured, _, _ = launch(FakeSession(), case("a", warmup=None))
    assert len(measured[0].warm_up_rounds) == 3
    assert measured[0].warm_up.steady


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], False),
        ([1.0], False),
        ([1.0, 1.0], False),
        ([1.0, 1.0, 1.0], True),
        ([2.0, 1.0, 1.0], False),
        ([2.0, 1.0, 1.0, 1.0], True),
        ([1.0, 3.0, 2.0], True),
        ([1.0, 0.96, 0.96], True),
        ([1.0, 0.9, 1.0], False),
    ],
)
def test_what_counts_as_steady(times, expected):
    assert steady([samples(0, 1, seconds) for seconds in times]) is expected


def test_rounds_are_whole_periods():
    assert [whole_periods(n, 4) for n in (1, 4, 5, 8)] == [4, 4, 8, 8]
    measured, _, _ = launch(FakeSession(period=2), case("a", steps=9, warmup=None))
    assert {r.steps % 2 for r in (*measured[0].rounds, *measured[0].warm_up_rounds)} == {0}
    assert measured[0].steps_done == 10
    one = Measured(case=case("a", steps=3, warmup=None))
    assert (warm_up_steps(one), round_steps(one)) == (3, 3)


def labels(groups):
    return [[f"{c.spec.strategy}/{c.spec.world_size}/{c.repeat}" for c in group.cases] for group in groups]


def nowhere(spec):
    return ()


def test_what_computes_elsewhere_is_launched_apart():
    many = [case("ddp", cell=0), case("no_overlap", cell=1)]
    assert labels(grouped(many, lambda spec: spec.strategy, lambda spec: 1, 2**30)) == [["ddp/2/0"], ["no_overlap/2/0"]]


def test_memory_together_is_what_all_variants_and_one_parity_pass_hold():
    """A model of 1 GiB: two variants on two ranks hold 4 x 8 copies, a parity pass 2 x 10 more: 52 GiB."""
    many = [case("ddp", cell=0), case("no_overlap", cell=1)]
    for free, together in ((52 * 2**30 / 0.6 + 2**20, True), (52 * 2**30 / 0.6 - 2**20, False)):
        found = labels(grouped(many, nowhere, lambda spec: 2**30, int(free)))
        assert found == ([["ddp/2/0", "no_overlap/2/0"]] if together else [["ddp/2/0"], ["no_overlap/2/0"]])


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ([], []),
        (
            [case("single", cell=0, world_size=1), case("ddp", cell=1), case("no_overlap", cell=2)],
            [["single/1/0", "ddp/2/0", "no_overlap/2/0"]],
        ),
        (
            [case("ddp", cell=0), case("ddp", cell=1, world_size=4), case("single", cell=2, world_size=1)],
            [["ddp/2/0", "ddp/4/0", "single/1/0"]],
        ),
        ([case("single", world_size=1)], [["single/1/0"]]),
        ([case("ddp", cell=0), case("ddp", cell=1, seed=1)], [["ddp/2/0"], ["ddp/2/0"]]),
        (
            [case("ddp", cell=k, world_size=n, network="1gbit") for k, n in enumerate((2, 4, 2))],
            [["ddp/2/0", "ddp/2/0"], ["ddp/4/0"]],
        ),
        (
            [case(name, cell=k, repeat=r) for r in range(3) for k, name in enumerate("ab")],
            [["a/2/0", "b/2/0"], ["b/2/1", "a/2/1"], ["a/2/2", "b/2/2"]],
        ),
    ],
)
def test_launches_hold_what_differs_in_strategy_and_ranks_only_and_odd_repeats_run_in_reverse(cases, expected):
    assert labels(grouped(cases, nowhere, lambda spec: 1000, 2**30)) == expected


def test_what_does_not_fit_into_memory_together_runs_alone_in_the_same_order():
    cases = [case(name, cell=k, repeat=r) for r in range(2) for k, name in enumerate("ab")]
    groups = grouped(cases, nowhere, lambda spec: 2**30, 2**31)
    assert labels(groups) == [["a/2/0"], ["b/2/0"], ["b/2/1"], ["a/2/1"]]
    assert all("ABBA" in group.because for group in groups)


def test_a_rank_lost_in_the_inspection_loses_nothing_that_was_measured():
    session = FakeSession(breaks={("inspect", "a"): lost()})
    measured, again, _ = launch(session, case("a"), case("b"))
    assert not again
    assert session.killed
    assert [(m.status, m.steps_done, m.inspected) for m in measured] == [("complete", 10, ())] * 2
    assert all("in the inspection of a" in m.teardown for m in measured)


def test_a_round_in_which_something_was_compiled_is_warm_up():
    session = FakeSession()
    real = FakeVariant.round

    def compiling_once(self, steps):
        found = real(self, steps)
        if found.first_step != 7:
            return found
        slow = msgspec.structs.replace(found.ranks[0], compile_s=1.5)
        return replace(found, ranks=(slow,))

    with mock.patch.object(FakeVariant, "round", compiling_once):
        measured, _, _ = launch(session, case("a", compile=True))
    assert [r.first_step for r in measured[0].warm_up_rounds] == [0, 7]
    assert [r.first_step for r in measured[0].rounds] == [2, 12]
    assert measured[0].steps_done == 10
