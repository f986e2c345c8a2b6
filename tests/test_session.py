"""The session: live ranks that hold several variants and step any of them, without one disturbing another."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from parbench import RunSpec, Session
from parbench.errors import RankFailed, Stuck, UsageError
from parbench.launch.failure import Stopped
from parbench.launch.stopping import StopRequest
from plugin_sources import dropping, strategy

pytestmark = pytest.mark.usefixtures("no_orphans")

TRAIN = 1438  # of 1797 digits a fifth, rounded down, is held out
EPOCH = 23  # ceil(1438 / 64)


def digits(strategy="ddp", **changes):
    return RunSpec(workload="digits", size="smoke", strategy=strategy, **changes)


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    return [
        dropping(folder),
        strategy(folder, "every_other", period=2),
        strategy(folder, "lingers", drain="time.sleep(0.2)"),
        strategy(folder, "not_here", unsupported="it needs a moon"),
        strategy(folder, "names_wrongly", parameters="{'x': torch.ones(1)}"),
        strategy(folder, "shapes_wrongly", parameters="{k: v[None] for k, v in self.job.model.named_parameters()}"),
        strategy(folder, "nan_on_rank_1", exchange="loss = loss + (float('nan') if ctx.rank else 0)"),
    ]


@pytest.fixture(scope="module")
def session(mark, plugins):
    with Session(world_size=2, timeout_s=30, plugins=plugins) as session:
        yield session


def alone(session, spec, rounds):
    variant = session.add(spec)
    losses = [variant.round(steps).losses for steps in rounds]
    variant.close()
    return losses


@pytest.mark.parametrize("workload", ["digits", "dropping"])
def test_variants_that_take_turns_train_as_each_does_alone(session, workload):
    specs = [RunSpec(workload=workload, size="smoke", strategy=name) for name in ("ddp", "no_overlap", "single")]
    rounds = [2, 3, 1]
    apart = [alone(session, spec, rounds) for spec in specs]
    variants = [session.add(spec) for spec in specs]
    together = [[] for _ in specs]
    for number, steps in enumerate(rounds):
        for variant, losses in zip(variants, together, strict=True):
            losses.append(variant.round(steps).losses)
            if number == 1:
                variant.parity(2)
                variant.held_out()
        if number == 0:
            session.add(specs[0]).close()
    assert together == apart
    for variant in variants:
        variant.close()


def test_the_parts_of_the_api_fit_together(session):
    variant = session.add(digits())
    agreement = variant.parity(2)
    assert agreement.passed
    assert agreement.steps == 2
    assert variant.steps_taken == 0
    first, second = variant.round(2), variant.round(3)
    assert (first.first_step, second.first_step, variant.steps_taken) == (0, 2, 5)
    assert second.samples == (64, 64, 64)
    assert len(second.ranks) == 2
    assert second.wall_s == max(r.wall_s for r in second.ranks) > 0
    before = variant.held_out().values
    assert 0 <= before["accuracy"] <= 1
    variant.round(20)
    assert variant.held_out().values["loss"] < before["loss"]
    variant.close()
    variant.close()


def test_what_is_closed_or_cannot_be_meant_is_refused_and_harms_nobody(session):
    variant = session.add(digits())
    with pytest.raises(UsageError, match="at least 1"):
        variant.round(0)
    with pytest.raises(UsageError, match="at least 1"):
        variant.parity(-1)
    with pytest.raises(UsageError, match=r"wants 3 ranks.*Session\(world_size=3\)"):
        session.add(digits(world_size=3))
    with pytest.raises(UsageError, match="did you mean 'ddp'"):
        session.add(digits("dpp"))
    variant.close()
    for call in (lambda: variant.round(1), lambda: variant.parity(1), variant.held_out):
        with pytest.raises(UsageError, match="closed"):
            call()
    assert alone(session, digits(), [1])


def test_an_unsupported_variant_says_why_and_harms_nobody(session):
    variant = session.add(digits("not_here"))
    assert variant.unsupported == "it needs a moon"
    with pytest.raises(UsageError, match="it needs a moon"):
        variant.round(1)
    assert alone(session, digits(), [1])


def test_time_to_drain_counts_in_the_rounds_wall_time(session):
    variant = session.add(digits("lingers"))
    variant.round(1)
    samples = variant.round(2)
    assert samples.drain_s >= 0.2
    assert samples.wall_s >= 0.2 + max(sum(r.seconds) for r in samples.ranks)
    variant.close()


@pytest.mark.parametrize("name", ["ddp", "no_overlap", "single"])
def test_accumulation_and_a_smaller_last_batch_count_exactly_what_was_processed(session, name):
    variant = session.add(digits(name, accumulate=4))
    samples = variant.round(EPOCH + 1).samples
    assert samples == (64,) * (EPOCH - 1) + (TRAIN - 64 * (EPOCH - 1), 64)
    agreement = variant.parity(EPOCH)
    assert agreement.passed, agreement.reason
    variant.close()


@pytest.mark.parametrize("name", ["ddp", "no_overlap"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_rank_whose_share_is_empty_works(session, name, accumulate):
    variant = session.add(digits(name, global_batch_size=1, accumulate=accumulate))
    agreement = variant.parity(3)
    assert agreement.passed, agreement.reason
    assert variant.round(3).samples == (1, 1, 1)
    variant.close()


def test_a_single_process_steps_beside_two_ranks(session):
    variant = session.add(digits("single"))
    assert variant.spec.world_size == 1
    assert len(variant.round(1).ranks) == 1
    assert variant.parity(2).loss_difference == 0
    variant.close()


@pytest.mark.parametrize(
    ("name", "why"),
    [("names_wrongly", "only one side has"), ("shapes_wrongly", "has shape")],
)
def test_parameters_that_are_not_the_models_are_a_disagreement_not_a_crash(session, name, why):
    variant = session.add(digits(name))
    agreement = variant.parity(1)
    assert agreement.passed is False
    assert why in agreement.reason
    variant.round(1)
    assert why in variant.held_out().reason
    variant.close()


def test_a_loss_that_one_rank_alone_lost_is_not_averaged_away(session):
    variant = session.add(digits("nan_on_rank_1"))
    assert "step 0 is not finite" in variant.parity(2).reason
    samples = variant.round(2)
    assert samples.losses == (None, None)
    assert samples.nonfinite == (0, 1)
    assert samples.ranks[0].losses[0] is not None
    variant.close()


def test_a_group_smaller_than_the_session_is_built_stepped_and_released(mark):
    with Session(world_size=3, timeout_s=30) as session:
        pair, all_three = session.add(digits(world_size=2)), session.add(digits(world_size=3))
        assert len(pair.round(2).ranks) == 2
        assert len(all_three.round(2).ranks) == 3
        assert pair.parity(2).passed
        pair.close()
        session.add(digits(world_size=2)).round(1)
    assert session.ranks.exit_codes == [0, 0, 0]


def test_a_closed_session_says_so(mark, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Session(world_size=1) as session:
        variant = session.add(digits("single"))
        assert list(tmp_path.glob("parbench-*/rank0.log"))
    session.close()
    with pytest.raises(UsageError, match="closed"):
        variant.round(1)
    with pytest.raises(UsageError, match="closed"):
        session.add(digits("single"))
    assert not list(tmp_path.glob("parbench-*"))


@pytest.mark.parametrize(("kind", "error"), [("raise", RankFailed), ("hang", Stuck)])
def test_a_failure_ends_the_session_and_keeps_the_log_it_names(mark, monkeypatch, tmp_path, kind, error):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PARBENCH_FAULT", f"rank=1,step=1,kind={kind}")
    with pytest.raises(error, match="rank 1/2 step 1") as caught, Session(world_size=2, timeout_s=1) as session:
        session.add(digits()).round(3)
    log = Path(caught.value.__notes__[0].partition(": ")[2])
    assert "most recent call" in log.read_text()
    with pytest.raises(UsageError, match="closed"):
        session.add(digits())


def test_asking_to_stop_ends_the_session_before_the_next_command(mark):
    stop = StopRequest()
    session = Session(world_size=2, stop=stop)
    variant = session.add(digits())
    stop.ask()
    with pytest.raises(Stopped) as caught:
        variant.round(1)
    assert caught.value.exit_code == 130
    session.kill()
    with pytest.raises(Stopped):
        Session(world_size=2, stop=stop)


def leaves_cleanly(times):
    for _ in range(times):
        with Session(world_size=2, timeout_s=30) as session:
            session.add(digits()).round(2)
        assert session.ranks.exit_codes == [0, 0]


def test_sessions_end_cleanly_with_a_ddp_variant_alive(mark):
    leaves_cleanly(10)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_sixty_sessions_end_cleanly_with_a_ddp_variant_alive(mark):
    leaves_cleanly(60)


def test_a_script_without_a_main_guard_works(mark, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "print('once')\n"
        "from parbench import RunSpec, Session\n"
        "with Session(world_size=2) as session:\n"
        "    ddp = session.add(RunSpec(workload='digits', size='smoke', strategy='ddp'))\n"
        "    print(ddp.round(2).steps)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "once\n2\n", "")


def test_a_script_that_forgets_to_close_its_session_ends(mark, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from parbench import Session\nsession = Session(world_size=2)\nprint('done')\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
