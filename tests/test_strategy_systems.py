"""Systems of papers: those that schedule train as one process does, those that are late as late training does."""

import threading
import time
from collections import deque
from pathlib import Path

import pytest
import torch
from torch import nn

from parbench import RunSpec, Session
from parbench.api import CommThread, Job
from parbench.conformance import check_strategy
from parbench.registry import Registry
from parbench_strategies.replicated._layer_updates import LayerUpdates
from parbench_strategies.replicated._order import AsReady, Board, Chosen
from parbench_strategies.replicated._turns import Turns

HERE = Path(__file__).parent
PLUGINS = [HERE / "sleepy.py", HERE / "exchanges.py"]
SYNCHRONOUS = (
    "p3(slice_elements=30)",
    "p3(slice_elements=1000, collective=ring_socket)",
    "dear(mb=0.0005)",
    "dear(collective=ring_socket)",
    "mgwfbp",
    "firecaffe",
    "gradientflow(fp16=False, csc=False)",
    "pipe_sgd(k=1)",
    "replicated(fusion=slices(elements=30), order=priority)",
)


@pytest.fixture(scope="module")
def session():
    with Session(world_size=4, plugins=PLUGINS) as ranks:
        yield ranks


def spec(strategy, workload, world_size, **changes):
    return RunSpec(workload=workload, strategy=strategy, size="smoke", world_size=world_size, **changes)


def losses(session, strategy, workload, world_size, rounds=(3, 3), **changes):
    """Return losses of several rounds: whatever is left of one step is completed at the end of each."""
    variant = session.add(spec(strategy, workload, world_size, **changes))
    try:
        return [loss for steps in rounds for loss in variant.round(steps).losses]
    finally:
        variant.close()


# ---- the same training


@pytest.mark.parametrize("world_size", [2, 4])
def test_what_only_schedules_gives_the_exact_average(session, world_size):
    """Gradients are multiples of a power of two, so that no order of additions rounds; optimizers use momentum."""
    right = losses(session, "no_overlap", "exchanges", world_size)
    for strategy in SYNCHRONOUS:
        assert losses(session, strategy, "exchanges", world_size) == right, strategy


def test_accumulation_gives_the_exact_average(session):
    right = losses(session, "no_overlap", "exchanges", 4, accumulate=2)
    for strategy in ("p3(slice_elements=30)", "dear(mb=0.0005)"):
        assert losses(session, strategy, "exchanges", 4, accumulate=2) == right


@pytest.mark.parametrize("workload", ["sleepy", "digits"])  # momentum, Adam
@pytest.mark.parametrize("strategy", ["p3(slice_elements=30)", "dear(mb=0.0005)", "firecaffe"])
def test_it_trains_as_one_process_does(session, strategy, workload):
    variant = session.add(spec(strategy, workload, 3))
    found = variant.parity(steps=6)
    variant.close()
    assert found.passed, found
    assert found.loss_difference < 5e-6  # of losses of about 5: 1e-6 of them
    assert found.parameter_difference < 1e-6


@pytest.mark.nightly
@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize(
    "strategy",
    [
        "p3(collective=ring_socket)",
        "dear(collective=ring_socket)",
        "dear(search=True)",
        "gradientflow(csc=False)",
        "pipe_sgd(k=3, warmup=2, codec=quantize8)",
    ],
)
def test_a_variant_of_a_system_obeys_the_laws(session, strategy, world_size):  # `make conformance` has the others
    verdict = check_strategy(strategy, world_size, session=session)
    assert verdict.passed, verdict.broken


# ---- late training


def delayed(steps, delay, warmup=0):
    """Return the losses of one process whose every update uses the gradient of `delay` steps ago."""
    job = Registry(PLUGINS).resolve("workload", "sleepy").build("smoke", 0, torch.device("cpu"), 8)
    optimizer = job.optimizer(job.model.parameters())
    found, late = [], deque()
    for step in range(steps):
        batch = job.batch(step)
        loss = job.loss(job.model(batch.inputs), batch) / batch.samples
        late.append(torch.autograd.grad(loss, list(job.model.parameters())))
        found.append(loss.item())
        if step < warmup or len(late) > delay:
            for parameter, grad in zip(job.model.parameters(), late.popleft(), strict=True):
                parameter.grad = grad
            optimizer.step()
    return found


@pytest.mark.parametrize(("k", "warmup"), [(1, 0), (2, 0), (2, 3), (4, 0)])
def test_pipe_sgd_is_training_with_gradients_that_are_late(session, k, warmup):
    found = losses(session, f"pipe_sgd(k={k}, warmup={warmup})", "sleepy", 2, rounds=(5, 1, 4))
    assert found == pytest.approx(delayed(10, k - 1, warmup), abs=1e-5)
    alone = losses(session, f"pipe_sgd(k={k}, warmup={warmup})", "sleepy", 1, rounds=(5, 1, 4))
    assert alone == pytest.approx(delayed(10, k - 1, warmup), abs=1e-6)


def test_late_gradients_are_others_than_a_steps_own():
    assert delayed(10, 0) != pytest.approx(delayed(10, 1), abs=1e-3)


def test_pipe_sgd_says_how_late_it_is(session):
    variant = session.add(spec("pipe_sgd(k=3, warmup=2)", "sleepy", 2))
    variant.round(3)
    notes = variant.inspect()[0].notes
    variant.close()
    assert (notes["staleness_steps"], notes["synchronous_steps"]) == (2, 2)


def test_what_a_step_may_leave_out_is_averaged_after_all_that_travels_by_priority(session):
    """Two threads that issue collectives side by side would meet others of the other ranks."""
    variant = session.add(spec("replicated(fusion=slices(elements=30), order=priority)", "sleepy(awkward=True)", 4))
    assert (found := variant.parity(steps=6)).passed, found
    variant.close()


# ---- the order on the wire


class _Store:
    """What a process group's store does, for threads of one process."""

    def __init__(self):
        self.kept, self.timeout = {}, type("T", (), {"total_seconds": lambda self: 5.0})()

    def check(self, keys):
        return all(key in self.kept for key in keys)

    def get(self, key):
        return self.kept[key]

    def set(self, key, value):
        self.kept[key] = value.encode()

    def add(self, key, amount):
        self.kept[key] = self.kept.get(key, 0) + amount
        return self.kept[key]

    def delete_key(self, key):
        self.kept.pop(key, None)


class _Group:
    def __init__(self, rank, store):
        self.rank, self.size, self.get_group_store = lambda: rank, lambda: 2, lambda: store


class _Wire:
    """Exchanges one group after the other, slowly."""

    def __init__(self, begin):
        self.order, self.begin, self.steps = [], begin, 0

    def exchange(self, number, lane):
        self.begin.wait(5)
        self.order.append(number)

    def end_step(self):
        self.steps += 1


PRIORITIES = [3, 3, 2, 2, 1, 1, 0]  # two slices of each of three late layers, and one of the first


def test_once_the_queue_backs_up_the_first_layers_overtake_the_others():
    begin, store = threading.Event(), _Store()
    wire, thread = _Wire(begin), CommThread(torch.device("cpu"))
    turns = Turns(PRIORITIES, Chosen(PRIORITIES, Board(_Group(0, store), "o"), 0), wire, thread, halves=False)
    turns.ready(0)
    while not turns.sequence:  # the first is on the wire before anything else is there
        time.sleep(0.001)
    for number in range(1, len(PRIORITIES)):
        turns.ready(number)
    begin.set()
    turns.land(6)
    turns.land_all()
    thread.close()
    assert wire.order == list(turns.sequence) == [0, 6, 4, 5, 2, 3, 1]
    assert wire.steps == 1


def test_what_is_computed_after_a_group_has_landed_comes_after_its_exchange_on_an_accelerator(monkeypatch):
    """There a turn is over for the host once it is issued: the stream that computes must wait for where it was."""

    class Issuing:
        """A communication thread whose jobs only issue."""

        def __init__(self):
            self.issued = 0

        def submit(self, job):
            job()
            self.issued += 1

        def mark(self):
            return self.issued

    followed = []
    stream = type("Stream", (), {"wait_event": lambda self, mark: followed.append(mark)})()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    begin = threading.Event()
    begin.set()
    turns = Turns([0, 1, 2], AsReady(), _Wire(begin), Issuing(), halves=False)
    for number in range(3):
        turns.ready(number)
    turns.land(2)
    turns.land(0)
    assert followed == [2, 0]


def test_other_ranks_wait_for_what_rank_0_chose():
    store = _Store()
    first = Chosen(PRIORITIES, Board(_Group(0, store), "o"), 0)
    other = Chosen(PRIORITIES, Board(_Group(1, store), "o"), 0)
    first.ready(0), first.ready(2), first.ready(1)
    assert [first.next() for _ in range(3)] == [2, 0, 1]
    other.ready(0)
    found = []
    thread = threading.Thread(target=lambda: found.extend(other.next() for _ in range(3)))
    thread.start()
    time.sleep(0.1)
    assert found == []  # group 2 is not ready here, though group 0 is
    other.ready(1), other.ready(2)
    thread.join(5)
    assert found == [2, 0, 1]


def test_a_rank_that_gives_up_does_not_wait_for_rank_0():
    board = Board(_Group(1, _Store()), "o")
    threading.Timer(0.1, board.end).start()
    with pytest.raises(RuntimeError, match="was closed before"):
        Chosen(PRIORITIES, board, 0).next()


def test_choices_are_gone_once_both_ranks_have_closed_the_board():
    store = _Store()
    boards = [Board(_Group(rank, store), "o") for rank in (0, 1)]
    for step in range(4):
        for board in boards:
            order = Chosen([0], board, step)
            order.ready(0)
            assert order.next() == 0
    boards[0].end()
    assert store.kept  # the other may not have read them
    boards[0].end()
    boards[1].end()
    assert store.kept == {}


# ---- updates by layer


class _Borrows(nn.Module):
    """Uses the weight of a module whose forward it does not call."""

    def __init__(self):
        super().__init__()
        self.lender = nn.Linear(2, 2)
        self.kept = nn.ParameterList([nn.Parameter(torch.ones(2))])

    def forward(self, x):
        return x @ self.lender.weight + self.kept[0]


def test_a_parameter_used_behind_its_modules_back_is_refused_and_not_trained_with_an_old_value():
    model = _Borrows()
    job = Job(
        model=model,
        loss=lambda outputs, batch: outputs.sum(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=lambda step: None,
        unit="samples",
        units_per_sample=1,
        blocks=(),
    )
    updates = LayerUpdates(job, lambda names: None)
    assert [len(one.param_groups[0]["params"]) for one in updates.optimizers] == [1, 2]  # the list's is its owner's
    model(torch.ones(1, 2)).sum().backward()
    updates.expect()
    with pytest.raises(RuntimeError, match=r"'lender\.weight' was used without its own module's forward"):
        model(torch.ones(1, 2)).sum().backward()
    updates.close()


def test_a_collective_that_has_no_halves_is_refused():
    with pytest.raises(Exception, match="collective=native cannot be cut into a reduce-scatter and an all-gather"):
        Registry().resolve("strategy", "dear(collective=native)")
