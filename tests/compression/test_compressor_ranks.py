"""Compressors in real ranks: a name alone is a strategy, ranks stay equal, and what is sent is what is said."""

import pytest

from amounts import amount
from parbench import RunSpec, Session, UsageError
from parbench.conformance import check_strategy
from parbench.registry import Registry

REGISTRY = Registry()
NAMES = [name for name in REGISTRY.names("compressor") if name != "none"]


@pytest.fixture(scope="module")
def session():
    with Session(world_size=3) as ranks:
        yield ranks


@pytest.mark.parametrize("name", NAMES)
def test_a_step_sends_what_is_said_and_says_how_its_time_was_spent(session, name):
    spec = RunSpec(workload="digits", strategy=name, size="smoke", world_size=3)
    variant = session.add(spec)
    try:
        losses = variant.round(3).losses
        facts = variant.inspect()
    finally:
        variant.close()
    assert all(loss is not None for loss in losses)
    for rank in facts:
        assert rank.notes["compressor"] == name
        assert {"encode_s", "transfer_s", "decode_s", "exposed_s", "dense_bytes"} <= set(rank.notes)
        assert "non_finite_gradients" not in rank.notes
        if rank.traffic is not None:
            assert rank.sent == pytest.approx(rank.traffic)
        # What ranks agree on first, four bytes a part or eight, is all that may be more than the gradients.
        assert sum(rank.sent.values()) <= rank.notes["dense_bytes"] + 2 * 8 * 10


@pytest.mark.nightly
@pytest.mark.parametrize("name", amount(NAMES, in_ci=NAMES[::3]))
def test_every_compressor_obeys_the_laws_of_strategies(session, name):
    """Fusion rules take turns; `parbench conform` shows any other point."""
    fusion = ("per_tensor", "buckets(mb=0.001)")[NAMES.index(name) % 2]
    verdict = check_strategy(f"replicated(fusion={fusion}, compressor={name})", 3, session=session)
    assert verdict.passed, verdict.broken


COLLECTIVES = [name for name in REGISTRY.names("collective") if name != "native"]
# Messages of every type that there is: bytes that add up, bfloat16, places, single precision, several rounds.
TYPES = ("shared_scale_int", "truncate", "lgc(dense_steps=1, train_steps=1)", "pactrain(patience=1)", "csc(chunk=100)")


@pytest.mark.nightly
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_carries_messages_of_every_type(session, collective):
    losses = {}
    for name in TYPES:
        strategy = f"replicated(compressor={name}, collective={collective})"
        variant = session.add(RunSpec(workload="digits", strategy=strategy, size="smoke", world_size=3))
        try:
            losses[name] = variant.round(4).losses[-1]
            facts = variant.inspect()
        finally:
            variant.close()
        for rank in facts:
            assert rank.traffic is None or rank.sent == pytest.approx(rank.traffic), name
    # Four steps with what is nearly the gradient are nearly the same, whoever adds up.
    assert losses["shared_scale_int"] == pytest.approx(losses["pactrain(patience=1)"], abs=2e-3)
    assert losses["truncate"] == pytest.approx(losses["pactrain(patience=1)"], abs=2e-3)


# ---- a compressor's name alone


def test_a_compressor_alone_is_the_engine_with_it():
    texts = ("topk(ratio=0.1)", "topk(0.1)", "replicated(compressor=topk(ratio=0.1))")
    assert len({REGISTRY.canonical("strategy", text) for text in texts}) == 1
    assert REGISTRY.resolve("strategy", "topk(ratio=0.1)").compressor.ratio == 0.1


def test_a_name_that_is_nearly_a_compressor_is_suggested():
    with pytest.raises(UsageError, match="no strategy named 'topkk'; did you mean 'topk'"):
        REGISTRY.resolve("strategy", "topkk")


def test_a_strategy_wins_over_a_compressor_of_its_name(tmp_path):
    file = tmp_path / "ddp_codec.py"
    file.write_text(
        '"""A codec."""\nfrom parbench.api import MeanCompressor, Paper\n\n\nclass Codec(MeanCompressor):\n'
        '    """Does nothing at all."""\n\n    name = "ddp"\n    paper = Paper("none", "https://example.org")\n\n'
        "    def encode(self, grad, key):\n        return grad\n\n"
        "    def decode(self, message, grad, key):\n        return message\n"
    )
    registry = Registry([file])
    assert "ddp" in registry.names("compressor")
    assert type(registry.resolve("strategy", "ddp")).__name__ == "Ddp"
