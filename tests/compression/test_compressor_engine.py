"""What the engine does around every compressor: error feedback, momentum, clipping, and what is not finite."""

import math
import random

import numpy as np
import pytest
import torch
from torch import nn

from exchanges import drawn_plan
from parbench.api import Comm, Stopwatch
from parbench.fusion import Gradient, Group, Piece, Plan
from parbench.registry import Registry
from parbench_strategies.replicated._exchanger import Exchanger
from parbench_strategies.replicated._layout import Layout, Planned
from parbench_strategies.replicated._momentum import momentum_of, without_momentum

REGISTRY = Registry()
NAMES = REGISTRY.names("compressor")
FED_BACK = [name for name in NAMES if REGISTRY.resolve("compressor", name).feedback]
SHAPES = {"a": (40, 30), "b": (40, 30), "c": (1003,), "d": ()}


def exchanger_of(name, momentum=0.0):
    compressor = REGISTRY.resolve("compressor", name)
    return Exchanger(REGISTRY.resolve("collective", "native"), compressor, Comm(None, 0, 1), Stopwatch(), momentum)


def laid_out(named, seed=None):
    given = [Gradient(name=name, elements=p.numel(), bytes=4 * p.numel()) for name, p in named.items()]
    whole = Plan((Group(tuple(Piece(k, 0, p.numel()) for k, p in enumerate(named.values()))),))
    plan = whole if seed is None else drawn_plan(given, random.Random(seed))
    return Layout([Planned(gradients=given, plan=plan)], named, list(named))


def averaged(exchanger, layout, grads):
    for name, grad in grads.items():
        layout.scatter(name, grad.reshape(-1))
    for number in range(len(layout.lanes)):
        exchanger.start(number)
    exchanger.finish()
    return {name: layout.gather(name) for name in grads}


@pytest.mark.parametrize("name", FED_BACK)
def test_error_feedback_loses_nothing_and_survives_new_groups(name):
    """The sum of all gradients is what was sent and what is left, whatever the groups are; momentum would add to it."""
    drawn = torch.Generator().manual_seed(0)
    named = {key: nn.Parameter(torch.zeros(shape)) for key, shape in SHAPES.items()}
    exchanger = exchanger_of(name)
    total, sent = ({key: torch.zeros(p.numel()) for key, p in named.items()} for _ in range(2))
    for step in range(12):
        if step % 4 == 0:
            layout = laid_out(named, step or None)
            exchanger.lay_out(layout)
        grads = {key: torch.randn(p.shape, generator=drawn) for key, p in named.items()}
        for key, average in averaged(exchanger, layout, grads).items():
            total[key] += grads[key].reshape(-1)
            sent[key] += average
    rests = exchanger._feedback.rests
    for key in named:
        left = rests.gather(key)
        assert float((total[key] - sent[key] - left).abs().max()) < 1e-5 * float(total[key].abs().max() + 1)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_finite_is_reported_and_not_spread(name):
    if REGISTRY.resolve("compressor", name).passes_through:
        pytest.skip("it exchanges the gradients' own memory, as training without a compressor does")
    named = {key: nn.Parameter(torch.zeros(shape)) for key, shape in SHAPES.items()}
    exchanger, layout = exchanger_of(name), laid_out(named)
    exchanger.lay_out(layout)
    drawn = torch.Generator().manual_seed(0)
    for step in range(4):
        grads = {key: torch.randn(p.shape, generator=drawn) for key, p in named.items()}
        if step == 1:
            grads["a"][3, 4], grads["a"][5, 6], grads["c"][7] = math.nan, math.inf, -math.inf
        for average in averaged(exchanger, layout, grads).values():
            assert bool(average.isfinite().all())
    assert exchanger.notes() == {"non_finite_gradients": 3}


def test_numbers_whose_sum_is_not_finite_are_left_alone():
    named = {"a": nn.Parameter(torch.zeros(4))}
    exchanger, layout = exchanger_of("bf16"), laid_out(named)
    exchanger.lay_out(layout)
    huge = torch.tensor([2.0**127, 2.0**127, -(2.0**100), 1.0])
    assert torch.equal(averaged(exchanger, layout, {"a": huge})["a"], huge)
    assert exchanger.notes() == {}


@pytest.mark.parametrize("name", ["csc(chunk=30, ratio=0.25)", "topk(ratio=0.1)", "topk(ratio=0.1, per=group)"])
def test_what_is_left_of_a_channels_last_gradient_stays_at_its_place(name):
    """Each element is given once: it is sent sooner or later, and nothing else is."""
    weight = nn.Parameter(torch.zeros(4, 3, 5, 2).to(memory_format=torch.channels_last))
    exchanger, layout = exchanger_of(name), laid_out({"w": weight})
    exchanger.lay_out(layout)
    (lane,) = layout.lanes
    given = torch.arange(1.0, 121)
    sent = torch.zeros(120)
    for step in range(20):
        lane.flat.copy_(given if step == 0 else torch.zeros(120))
        exchanger.start(0)
        exchanger.finish()
        sent += lane.flat
    assert torch.equal(sent, given)


def test_momentum_correction_is_that_of_the_paper():
    """u = m u + g, v = v + u, the largest of v are sent, u and v are zero there: by hand, beside it."""
    elements, momentum, k = 600, 0.9, 6
    named = {"b": nn.Parameter(torch.zeros(50)), "a": nn.Parameter(torch.zeros(elements))}
    exchanger, layout = exchanger_of("dgc(ratio=0.01)", momentum), laid_out(named)
    exchanger.lay_out(layout)
    numbers = np.random.default_rng(0)
    u, v = np.zeros(elements), np.zeros(elements)
    for step in range(30):
        if step == 15:  # new groups, in which the parameter has another place
            layout = laid_out(dict(reversed(named.items())))
            exchanger.lay_out(layout)
        grad = numbers.normal(size=elements)
        found = averaged(exchanger, layout, {"a": torch.from_numpy(grad).float(), "b": torch.ones(50)})["a"].numpy()
        u = momentum * u + grad
        v = v + u
        chosen = np.argsort(np.abs(v))[-k:]
        right = np.zeros(elements)
        right[chosen] = v[chosen]
        u[chosen] = v[chosen] = 0
        assert np.allclose(found, right, atol=1e-3), step


def test_gradients_are_cut_to_their_part_of_a_norm():
    named = {"a": nn.Parameter(torch.zeros(300)), "b": nn.Parameter(torch.zeros(300))}
    exchanger, layout = exchanger_of("dgc(ratio=1, clip=5)"), laid_out(named)
    exchanger.lay_out(layout)
    long, short = torch.full((300,), 1.0), torch.full((300,), 0.1)  # norms 17.3 and 1.73
    found = averaged(exchanger, layout, {"a": long, "b": short})
    assert float(found["a"].norm()) == pytest.approx(5)
    assert torch.equal(found["b"], short)


def test_momentum_moves_from_the_optimizer_to_before_compression():
    job = REGISTRY.resolve("workload", "digits").build("smoke", 0, torch.device("cpu"), 8)
    assert momentum_of(job) > 0
    bare = without_momentum(job)
    assert momentum_of(bare) == 0
    parameter = nn.Parameter(torch.ones(3))
    optimizer = bare.optimizer([parameter])
    for _ in range(2):
        parameter.grad = torch.ones(3)
        optimizer.step()
    assert not any(
        "momentum_buffer" in state and state["momentum_buffer"] is not None for state in optimizer.state.values()
    )
