"""The loop: barrier, steps, drain; what is marked, counted and left out of the record's time."""

import math
import signal
import threading

import pytest
import torch

from contexts import context
from parbench.api import Batch, Trainer
from parbench.clock import HostClock
from parbench.faults import parse_fault
from parbench.heartbeat import Heartbeat
from parbench.launch.failure import RankLost, follows_from_a_peer, is_out_of_memory, sentence
from parbench.launch.stopping import StopRequest
from parbench.loop import run_steps
from parbench.randomness import Randomness
from parbench.record import Failure


class Counting(Trainer):
    """Notes what happens in which order."""

    def __init__(self, losses=()):
        self.log = []
        self.losses = dict(enumerate(losses))

    def step(self, batch):
        self.log.append("step")
        value = self.losses.get(len([x for x in self.log if x == "step"]) - 1, 1.0)
        return None if value is None else torch.tensor(value)

    def drain(self):
        self.log.append("drain")

    def full_parameters(self):
        return {}


class Place:
    step = None


def loop(trainer, *, first=0, count=3, fault=None):
    place = Place()

    def batch(step):
        return Batch(inputs=torch.zeros(8 if step < 2 else 3, 1), targets=torch.zeros(1))

    found = run_steps(
        trainer,
        batch,
        context(1),
        HostClock(),
        first=first,
        count=count,
        progress=place,
        fault=fault or (lambda step: None),
    )
    return found, place


def test_steps_then_one_drain_and_every_sample_counted():
    trainer = Counting()
    found, place = loop(trainer, first=1, count=3)
    assert trainer.log == ["step", "step", "step", "drain"]
    assert found.samples == (8, 3, 3)
    assert place.step == 3
    assert len(found.seconds) == 3
    assert sum(found.seconds) + found.drain_s <= found.wall_s


def test_losses_that_are_missing_or_not_finite_are_told_apart():
    found, _ = loop(Counting([1.0, None, math.inf]), first=0)
    assert found.losses == (1.0, None, None)
    assert found.nonfinite == (2,)
    found, _ = loop(Counting([None, None, None]))
    assert (found.losses, found.nonfinite) == ((None, None, None), ())


def test_an_injected_nan_acts_from_its_step_on():
    fault = parse_fault("rank=0,step=1,kind=nan,until=1")
    found, _ = loop(Counting(), fault=lambda step: fault if fault.acts(0, step, "x") else None)
    assert found.nonfinite == (1,)


class Group:
    """A process group that somebody destroys while it is looked at."""

    def __init__(self):
        self.alive = True
        self.seen_dead = False

    def _get_sequence_number_for_group(self):
        self.seen_dead |= not self.alive
        if not self.alive:
            raise RuntimeError("destroyed")
        return 7


def test_a_group_is_not_looked_at_once_it_is_not_watched_any_more():
    heartbeat = Heartbeat(0, None)
    stop = threading.Event()

    def look():
        while not stop.is_set():
            heartbeat.pulse()

    thread = threading.Thread(target=look)
    thread.start()
    groups = [Group() for _ in range(500)]
    for group in groups:
        heartbeat.watch([group])
        heartbeat.watch([])
        group.alive = False
    stop.set()
    thread.join()
    assert not any(group.seen_dead for group in groups)


def test_a_heartbeat_outlives_a_group_that_a_strategy_destroyed():
    heartbeat = Heartbeat(3, None)
    group = Group()
    heartbeat.watch([group])
    assert heartbeat.pulse().sequence == (7,)
    group.alive = False
    assert heartbeat.pulse().sequence == ()


def test_what_is_drawn_inside_does_not_show_outside():
    torch.manual_seed(1)
    mine, expected = Randomness(torch.device("cpu")), torch.rand(4)
    torch.manual_seed(2)
    outside = torch.rand(1)
    torch.manual_seed(2)
    with mine:
        first = torch.rand(2)
    assert torch.rand(1) == outside
    with mine:
        second = torch.rand(2)
    assert torch.equal(torch.cat([first, second]), expected)


@pytest.mark.parametrize(
    ("message", "follows"),
    [
        ("RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242", True),
        ("DistBackendError: NCCL error ... ncclRemoteError: A call failed possibly due to a network error", True),
        ("RuntimeError: Broken pipe", True),
        ("ZeroDivisionError: division by zero", False),
    ],
)
def test_who_only_lost_a_peer_is_not_the_cause(message, follows):
    assert follows_from_a_peer(message) is follows


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_memory_that_ran_out_is_known_by_its_message(error, memory):
    assert is_out_of_memory(error) is memory


def test_a_failure_is_one_sentence():
    failure = Failure(rank=1, step=3, kind="exception", message="KeyError: 'x'")
    assert sentence(failure, 4) == "rank 1/4 step 3 KeyError: 'x'"
    assert str(RankLost(failure, 4)) == "rank 1/4 step 3 KeyError: 'x'"
    nobody = Failure(rank=None, step=None, kind="exit", message="was given up")
    assert sentence(nobody, 4) == "the launch of 4 ranks was given up"


def test_requests_to_stop_are_counted_and_the_first_decides_the_exit_code():
    before = signal.getsignal(signal.SIGINT)
    with StopRequest() as stop:
        assert not stop.asked
        signal.raise_signal(signal.SIGTERM)
        assert stop.asked
        assert not stop.now
        signal.raise_signal(signal.SIGINT)
        assert stop.now
        assert stop.exit_code == 143
    assert signal.getsignal(signal.SIGINT) is before
