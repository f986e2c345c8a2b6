"""Tensor parallelism trains as one process does in every variant, sends what a hand counts, refuses what it cannot cut.

B samples, T positions, D width, V vocabulary.
"""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F

from contexts import context
from parbench import RunSpec, Session
from parbench.conformance import check_strategy
from parbench.errors import UsageError
from parbench.registry import Registry
from parbench_strategies.tensor._vocabulary import CutLogits, Part

WORDS = '''
"""GPT with a vocabulary that no number of ranks divides."""
from parbench.workloads.gpt import Gpt

SHAPE = {"layers": 2, "width": 32, "heads": 4, "context": 32, "vocabulary": 101}


class Words(Gpt):
    """GPT of 101 words."""

    sizes = {"smoke": SHAPE | {"tied": 0}, "tied": SHAPE | {"tied": 1}}
'''
FORGETFUL = '''
"""Sequence parallelism that leaves some gradients as the part of the positions that each rank has."""
from parbench.api import Paper, Strategy
from parbench_strategies.tensor.tensor import Tensors


class Forgetful(Strategy):
    """Tensor parallelism that does not add up the gradients of some parameters."""

    paper = Paper("none", "https://example.org")
    agrees = "closely"
    consumes_model = True

    def __init__(self, forgets: str):
        self.forgets = forgets

    def wrap(self, job, ctx):
        trainer = Tensors(sequence_parallel=True).wrap(job, ctx)
        summed = trainer.exchange._summed
        trainer.exchange._summed = {name for name in summed if self.forgets not in name}
        assert trainer.exchange._summed < summed
        return trainer
'''
# gpt and words of size smoke with 8 samples, 2 layers: B T D floats, in bytes; and the parameters that see only a part
# of the positions: two norms (weight, bias) and two row-cut biases in each layer, and the norm of the head.
BTD = 8 * 32 * 32 * 4
PARTIAL = (2 * (2 * 2 + 2) + 2) * 32 * 4
REGISTRY = Registry()


def tensor(**arguments):
    written = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return REGISTRY.resolve("strategy", f"tensor({written})")


def gpt(size="smoke", batch=8):
    return REGISTRY.resolve("workload", "gpt").build(size, 0, torch.device("meta"), batch)


def without(job, kind):
    return replace(job, shardings={pattern: cut for pattern, cut in job.shardings.items() if cut != kind})


# ---- refused before any rank starts


def test_heads_12_at_degree_8_is_refused_with_the_nearest_values():  # C4
    for arguments in ({}, {"degree": 8}):
        refused = tensor(**arguments).impossible(gpt("gpt2"), 8)
        assert "12 pieces" in refused
        assert "nearest degrees that can: 6 and 12 (of 8 ranks: 4)" in refused
    assert tensor(degree=4).impossible(gpt("gpt2"), 8) is None


def test_degree_3_of_4_ranks_is_refused_with_the_equation_and_the_nearest_values():  # C1
    refused = tensor(degree=3).impossible(gpt(), 4)
    assert "degree x replicas = world size" in refused
    assert "3 x replicas = 4" in refused
    assert "2 and 4" in refused


def test_a_workload_that_declares_nothing_to_cut_is_refused_but_for_degree_1():
    job = replace(gpt(), shardings={})
    assert "declares no shardings" in tensor().impossible(job, 2)
    assert tensor(degree=1).impossible(job, 2) is None


def test_sequence_parallelism_needs_declared_layers_and_positions_that_divide():
    job = gpt("gpt2")
    assert "no layer 'position'" in tensor(sequence_parallel=True).impossible(without(job, "position"), 2)
    one_missing = {p: cut for p, cut in job.shardings.items() if p != "head.norm.*"}
    assert "head.norm.weight" in tensor(sequence_parallel=True).impossible(replace(job, shardings=one_missing), 2)
    refused = tensor(sequence_parallel=True).impossible(job, 3)
    assert "1024 positions" in refused
    assert "2 and 4" in refused
    assert "1023 and 1026" in refused


def test_loss_parallelism_needs_a_declared_layer_and_a_loss_it_can_compute_on_parts():
    assert "no layer 'vocabulary'" in tensor(loss_parallel=True).impossible(without(gpt(), "vocabulary"), 2)

    def wrong(outputs, batch):
        return (outputs.argmax(-1) != batch.targets).float().sum()

    assert "argmax" in tensor(loss_parallel=True).impossible(replace(gpt(), loss=wrong), 2)
    assert tensor(loss_parallel=True).impossible(gpt("gpt2"), 2) is None  # 50257 words, tied


def test_a_target_outside_every_part_gives_no_finite_loss():
    logits = CutLogits.of(torch.zeros(2, 3), Part(start=0, size=3, exchange=lambda x: [x]))
    losses = F.cross_entropy(logits, torch.tensor([2, 5]), reduction="none")
    assert type(losses) is torch.Tensor
    torch.testing.assert_close(losses, torch.tensor([3.0, torch.inf]).log())


# ---- closed forms, by hand


@pytest.mark.parametrize("degree", [2, 4])
def test_the_closed_form_is_four_all_reduces_per_layer(degree):
    by_hand = 2 * 4 * BTD * Fraction(2 * (degree - 1), degree)
    assert tensor().traffic(gpt(), context(degree)) == {"all_reduce": by_hand}
    assert tensor().textbook(gpt(), context(degree)).sent_bytes == by_hand


@pytest.mark.parametrize("degree", [2, 4])
def test_sequence_parallelism_sends_the_same_in_halves_and_what_enters_and_leaves(degree):
    part = Fraction(degree - 1, degree)
    strategy = tensor(sequence_parallel=True)
    assert strategy.traffic(gpt(), context(degree)) == {
        "all_gather": (2 * 4 + 2) * BTD * part,  # the gradient of the embedding, and the input of the head
        "reduce_scatter": 2 * 4 * BTD * part,
        "all_reduce": 2 * PARTIAL * part,
    }
    assert strategy.textbook(gpt(), context(degree)).sent_bytes == 2 * 4 * BTD * 2 * part


def test_a_cut_loss_sends_two_floats_per_position_and_the_gradient_of_the_heads_input():
    by_hand = {"all_reduce": (2 * 4 + 1) * BTD * Fraction(3, 2), "all_gather": 3 * 2 * 8 * 32 * 4}
    assert tensor(loss_parallel=True).traffic(gpt(), context(4)) == by_hand


def test_replicas_average_what_a_rank_holds():
    """Two replicas of degree 2: half of the batch each, and a rank's part of the parameters once per step."""
    strategy, job = tensor(degree=2), gpt()
    cut = 2 * (12 * 32 * 32 + (3 + 4) * 32)  # per layer: 12 D^2 of weights, biases of qkv and up
    whole = (2 * 256 + 32) * 32 + 2 * (2 * 2 + 2) * 32 + 2 * 32  # embeddings and head, norms and row-cut biases
    held = (cut // 2 + whole) * 4
    assert strategy.memory(job, context(4)).parameters == held
    assert strategy.traffic(job, context(4)) == {"all_reduce": 2 * 4 * BTD // 2 + held}


def test_parts_of_a_vocabulary_of_50257_differ_by_one_row():
    strategy = tensor(degree=2, loss_parallel=True)
    first, second = (strategy.memory(gpt("gpt2"), context(4, rank)).parameters for rank in (0, 1))
    assert second - first == 768 * 4


# ---- live ranks


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    plugins = [folder / "words.py", folder / "forgetful.py"]
    for file, text in zip(plugins, (WORDS, FORGETFUL), strict=True):
        file.write_text(text)
    with Session(world_size=4, device="cpu", plugins=plugins) as session:
        yield session


def agrees_and_sends(session, workload, strategy, world_size, **settings):
    """Compare with one process, then with the closed forms of traffic and memory; return what rank 0 sent."""
    given = {"size": "smoke", "global_batch_size": 8, **settings}
    variant = session.add(RunSpec(workload=workload, strategy=strategy, world_size=world_size, **given))
    assert variant.unsupported is None
    # Four ranks on two cores wait for each other in every collective: one step of theirs costs as much as four of two.
    agreement = variant.parity(steps=2 if world_size == 2 else 1)
    assert agreement.passed, agreement.reason
    seen = variant.inspect()
    variant.close()
    for rank in seen:
        assert not rank.unreadable
        assert rank.sent == rank.traffic
        assert rank.held == {kind: rank.memory[kind] for kind in rank.held}
    return seen[0].sent


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", ["tensor", "tensor(degree=2)"])
def test_every_law_holds(session, strategy):
    verdict = check_strategy(strategy, 4, session=session)
    assert verdict.passed, verdict.broken


@pytest.mark.nightly
@pytest.mark.parametrize("workload", ["gpt", "text"])
@pytest.mark.parametrize("degree", [2, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("loss_parallel", [False, True])
def test_every_combination_trains_as_one_process_does(session, workload, degree, sequence_parallel, loss_parallel):
    strategy = f"tensor(degree={degree}, sequence_parallel={sequence_parallel}, loss_parallel={loss_parallel})"
    sent = agrees_and_sends(session, workload, strategy, degree)
    part = Fraction(degree - 1, degree)
    by_hand = 2 * 4 * BTD * 2 * part
    by_hand += (2 * BTD + 2 * PARTIAL) * part if sequence_parallel else 0
    if loss_parallel:
        # The gradient of the head's input, and of every position two floats of each other rank.
        by_hand += BTD * part * (1 if sequence_parallel else 2) + (degree - 1) * 2 * 8 * 32 * 4
    assert sum(sent.values()) == by_hand


@pytest.mark.parametrize("size", ["smoke", "tied"])
@pytest.mark.parametrize("arguments", ["", "loss_parallel=True"])
def test_a_vocabulary_of_101_at_degree_2_trains_as_one_process_does(session, size, arguments):
    agrees_and_sends(session, "words", f"tensor({arguments})", 2, size=size)


def test_replicas_and_micro_batches_of_any_size(session):
    """Three samples: shares of 1 and 2, cut into micro-batches of 0 and 1, 1 and 1."""
    strategy = "tensor(degree=2, sequence_parallel=True, loss_parallel=True)"
    agrees_and_sends(session, "words", strategy, 4, size="tied", accumulate=2, global_batch_size=3)


def test_recomputation_sends_again_all_but_the_last_sum_of_a_block(session):
    sent = agrees_and_sends(session, "gpt", "tensor", 2, recompute="full")
    assert sent == {"all_reduce": 2 * (4 + 1) * BTD}
    strategy = "tensor(sequence_parallel=True, loss_parallel=True)"
    agrees_and_sends(session, "words", strategy, 2, size="tied", recompute="selective")


def test_half_precision_halves_what_passes_between_layers(session):
    sent = agrees_and_sends(session, "gpt", "tensor", 2, precision="bf16")
    assert sent == {"all_reduce": 2 * 4 * BTD // 2}


@pytest.mark.parametrize("forgets", ["norm", "down.bias"])
def test_forgetting_to_add_up_gradients_is_caught(session, forgets):
    spec = RunSpec(workload="gpt", strategy=f"forgetful(forgets='{forgets}')", size="smoke", world_size=2)
    variant = session.add(spec)
    agreement = variant.parity(steps=2)
    variant.close()
    assert not agreement.passed
    assert "different parameters" in agreement.reason


def test_what_is_impossible_never_reaches_the_ranks(session):
    with pytest.raises(UsageError, match="cannot share equally"):
        session.add(RunSpec(workload="gpt", strategy="tensor", size="smoke", world_size=3))
