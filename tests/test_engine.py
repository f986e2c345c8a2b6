"""The engine's parts: gradients are views of their pool, error feedback loses nothing, what is timed adds up."""

import random
from pathlib import Path

import pytest
import torch
from torch import nn

from exchanges import drawn_plan
from parbench.api import Channel, Comm, Stopwatch
from parbench.compact import dense
from parbench.fusion import Gradient, Group, Piece, Plan
from parbench.registry import Registry
from parbench_strategies.replicated._exchanger import Exchanger
from parbench_strategies.replicated._layout import Layout, Planned

REGISTRY = Registry([Path(__file__).parent / "forgetful.py"])
ALONE = Comm(None, 0, 1)
SHAPES = {"a": (3, 4), "b": (), "c": (7,), "d": (2, 3, 2)}


def parameters(shapes=SHAPES):
    return {name: nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()}


def gradients(named):
    return [Gradient(name=name, elements=p.numel(), bytes=4 * p.numel()) for name, p in named.items()]


def laid_out(named, plan=None, seed=0):
    given = gradients(named)
    planned = Planned(gradients=given, plan=plan or drawn_plan(given, random.Random(seed)))
    return Layout([planned], named, list(named))


# ---- layouts


@pytest.mark.parametrize("seed", range(20))
def test_every_element_has_one_place_in_one_group(seed):
    named = parameters()
    layout = laid_out(named, seed=seed)
    for k, lane in enumerate(layout.lanes):
        lane.flat.fill_(k + 1)
        assert sum(part.flat.numel() for part in lane.parts) == lane.flat.numel()
    assert sum(lane.flat.numel() for lane in layout.lanes) == sum(p.numel() for p in named.values())
    for name, parameter in named.items():
        drawn = torch.randn(parameter.numel())
        layout.scatter(name, drawn)
        assert torch.equal(layout.gather(name), drawn)
        if name in layout.views:
            assert torch.equal(layout.views[name], drawn.view(parameter.shape))


def test_gradients_in_one_piece_are_views_of_their_group():
    named = parameters()
    whole = [Piece(k, 0, p.numel()) for k, p in enumerate(named.values())]
    layout = laid_out(named, Plan((Group(tuple(whole[:3])), Group(tuple(whole[3:])))))
    assert list(layout.views) == list(named)
    layout.views["c"].fill_(5)
    assert layout.lanes[0].flat[13:].tolist() == [5.0] * 7
    assert [part.key for part in layout.lanes[0].parts] == ["a", "b", "c"]
    assert layout.lanes[0].parts[0].shaped.shape == (3, 4)
    assert {view.untyped_storage().data_ptr() for view in layout.views.values()} == {
        layout.lanes[1].flat.untyped_storage().data_ptr()
    }


def test_slices_in_a_row_are_still_one_view_and_others_are_not():
    named = parameters({"a": (10,)})
    rows = Plan((Group((Piece(0, 0, 4),)), Group((Piece(0, 4, 10),))))
    turned = Plan((Group((Piece(0, 4, 10),)), Group((Piece(0, 0, 4),))))
    assert laid_out(named, rows).views["a"].shape == (10,)
    assert laid_out(named, rows).lanes[1].parts[0].key == "a[4:10]"
    assert laid_out(named, turned).views == {}


def test_channels_last_gradients_keep_their_order_in_memory():
    weight = nn.Parameter(torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last))
    view = laid_out({"w": weight}).views.get("w")
    whole = laid_out({"w": weight}, Plan((Group((Piece(0, 0, 120),)),))).views["w"]
    assert whole.stride() == weight.stride()
    assert view is None or view.stride() == weight.stride()


def test_types_take_turns_as_their_gradients_become_ready():
    named = {
        "a": nn.Parameter(torch.zeros(2)),
        "b": nn.Parameter(torch.zeros(2).half()),
        "c": nn.Parameter(torch.zeros(3)),
    }
    single, half = gradients({"a": named["a"], "c": named["c"]}), gradients({"b": named["b"]})
    plans = [
        Planned(gradients=single, plan=Plan((Group((Piece(0, 0, 2),)), Group((Piece(1, 0, 3),))))),
        Planned(gradients=half, plan=Plan((Group((Piece(0, 0, 2),)),))),
    ]
    assert [lane.parts[0].key for lane in Layout(plans, named, list(named)).lanes] == ["a", "b", "c"]


# ---- exchange and error feedback


def filled(layout, named):
    given = {name: torch.randn(p.shape) for name, p in named.items()}
    for name, grad in given.items():
        layout.scatter(name, grad.reshape(-1))
    return given


def stepped(exchanger, layout):
    for number in range(len(layout.lanes)):
        exchanger.start(number)
    exchanger.finish()


def test_error_feedback_loses_nothing_and_survives_new_groups():
    """The sum of all gradients is the sum of all that was sent, and the rest, by parameter, whatever the groups are."""
    torch.manual_seed(0)
    named = parameters()
    compressor = REGISTRY.resolve("compressor", "largest(ratio=0.25)")
    exchanger = Exchanger(REGISTRY.resolve("collective", "native"), compressor, ALONE, Stopwatch())
    total = {name: torch.zeros(p.numel()) for name, p in named.items()}
    sent = {name: torch.zeros(p.numel()) for name, p in named.items()}
    for step in range(30):
        if step % 10 == 0:
            layout = laid_out(named, seed=step)
            exchanger.lay_out(layout)
        for name, grad in filled(layout, named).items():
            total[name] += grad.reshape(-1)
        stepped(exchanger, layout)
        for name in named:
            sent[name] += layout.gather(name)
    rests = exchanger._feedback.rests
    for name in named:
        assert torch.allclose(total[name], sent[name] + rests.gather(name), atol=1e-5)
    assert max(float(rests.gather(name).abs().max()) for name in named) > 0.1, "nothing was kept: this shows too little"


@pytest.mark.parametrize("name", ["none", "fp16"])
def test_one_rank_gets_back_what_it_sends(name):
    named = parameters()
    exchanger = Exchanger(
        REGISTRY.resolve("collective", "native"), REGISTRY.resolve("compressor", name), ALONE, Stopwatch()
    )
    layout = laid_out(named, seed=3)
    exchanger.lay_out(layout)
    given = filled(layout, named)
    stepped(exchanger, layout)
    for key, grad in given.items():
        assert torch.allclose(layout.gather(key), grad.reshape(-1), rtol=1e-3, atol=1e-3 if name == "fp16" else 0)


@pytest.mark.parametrize("name", ["none", "fp16", "largest"])
def test_a_compressor_leaves_gradients_alone_and_says_what_it_sent(name):
    compressor = REGISTRY.resolve("compressor", name)
    channel = Channel(ALONE, REGISTRY.resolve("collective", "native"))
    grads = [torch.randn(5, 3), torch.randn(()), torch.randn(5, 3).half()[:0], torch.randn(5, 3)]
    grads = [grad for grad in grads if grad.numel()]
    before = [grad.clone() for grad in grads]
    reduced = compressor.reduce(grads, list("abc"), channel)
    for grad, old, one in zip(grads, before, reduced, strict=True):
        assert torch.equal(grad, old)
        average, contribution = dense(one.average), dense(one.contribution())
        assert average.shape == contribution.shape == grad.shape
        assert torch.allclose(average, contribution, rtol=1e-6)


# ---- channels


def test_messages_are_packed_and_unpacked_whatever_their_types_and_shapes():
    channel = Channel(ALONE, REGISTRY.resolve("collective", "native"))
    messages = [
        [torch.tensor([1, 2, 3], dtype=torch.uint8), torch.randn(2, 2)],
        [torch.tensor(5, dtype=torch.int64)],
        [torch.zeros(0), torch.randn(3).half()],
    ]
    for message, by_rank in zip(messages, channel.gather(messages), strict=True):
        (mine,) = by_rank
        for part, got in zip(message, mine, strict=True):
            assert got.dtype == part.dtype
            assert got.shape == part.shape
            assert torch.equal(got, part)


# ---- time


def test_a_stopwatch_counts_overlapping_messages_once_and_takes_them_from_coding(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(clock)))
    watch = Stopwatch()

    class Ready:
        def wait(self):
            return torch.zeros(())

        def done(self):
            return True

    with watch.exposed():  # 0
        with watch.spends("encode"):  # 1
            flight = watch.start(Ready)  # 2 to 3
        # 4
        with watch.spends("decode"):  # 5
            watch.wait(flight)  # 6 to 7
        # 8
    # 9
    watch._flights += [(2.5, 4.0), (10.0, 11.0)]
    watch.step()
    assert watch.means() == {"encode_s": 2.0, "transfer_s": 3.0, "decode_s": 2.0, "exposed_s": 9.0}
    watch.reset()
    assert watch.means() == {}
    assert Stopwatch(on=False).start(Ready).done()


def test_a_message_whose_end_nobody_tells_leaves_transfer_out():
    class Pending:
        def wait(self):
            return torch.zeros(())

        def done(self):
            return False

    watch = Stopwatch()
    watch.wait(watch.start(Pending))
    watch.step()
    assert list(watch.means()) == ["encode_s", "decode_s", "exposed_s"]
