"""FLOPs counted from shapes against formulas worked out by hand; a multiply-add is two.

B samples, T positions, D width, F width of the perceptron, H heads, G heads of keys and values, K width of a head,
V vocabulary, L layers, E experts.
"""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from workload_cases import META, SMALL, workload

from parbench import axes
from parbench.computed import step_flops
from parbench.flops import FlopCount, UncountedOperator, training_flops
from parbench.job import Batch, Job
from parbench.spec import RunSpec

B, T, D = 3, 8, 16


def job(model, inputs, blocks=()):
    """A job whose loss is a sum; only shapes matter."""
    batch = Batch(inputs=inputs, targets=torch.zeros(inputs.shape[0]))
    return Job(
        model=model,
        loss=lambda outputs, share: outputs.sum(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch=lambda step: batch,
        unit="samples",
        units_per_sample=1,
        blocks=blocks,
    )


def total(model, inputs):
    return sum(training_flops(job(model.to("meta"), inputs)).values())


def gpt(batch, layers, width, context, vocabulary):
    """6 P + 12 L H K T per token, P the weights of matrices: PaLM appendix B; a lookup costs nothing, tied or not."""
    weights = layers * 12 * width * width + vocabulary * width
    return batch * context * (6 * weights + 12 * layers * width * context)


def mlp(batch, sizes):
    """6 per weight, but nobody needs the gradient of the pixels."""
    weights = [a * b for a, b in itertools.pairwise(sizes)]
    return batch * (6 * sum(weights) - 2 * weights[0])


def cnn(batch, channels, filters, rows, columns, classes):
    """Three 3 x 3 convolutions, two of which halve the image, and a head."""
    halved = [(rows, columns)]
    for _ in range(2):
        halved.append(tuple((side + 1) // 2 for side in halved[-1]))
    chain = [channels, filters, 2 * filters, 4 * filters]
    layers = [2 * h * w * 9 * a * b for (h, w), a, b in zip(halved, chain, chain[1:], strict=False)]
    return batch * (3 * sum(layers) - layers[0] + 6 * 4 * filters * classes)


def formula(name, settings, inputs, classes):
    batch = inputs.shape[0]
    if name in ("text", "gpt"):
        return gpt(batch, *(settings[key] for key in ("layers", "width", "context", "vocabulary")))
    if "filters" in settings:
        return cnn(batch, inputs.shape[1], settings["filters"], *inputs.shape[2:], classes)
    return mlp(batch, [inputs.shape[1], *[settings["width"]] * settings["layers"], classes])


@pytest.mark.parametrize(("name", "size"), SMALL)
def test_every_workload_costs_what_its_formula_says(name, size, tmp_path):
    one = workload(name, tmp_path)
    shapes = one.build(size, 0, META, 6)
    classes = list(shapes.model.parameters())[-1].shape[0]
    assert sum(training_flops(shapes).values()) == formula(name, one.sizes[size], shapes.batch(0).inputs, classes)


@pytest.mark.parametrize("tied", [False, True])
def test_tied_and_untied_embeddings_cost_the_same(tied):
    class Tiny(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.logits = nn.Embedding(40, D), nn.Linear(D, 40, bias=False)
            if tied:
                self.logits.weight = self.tokens.weight

        def forward(self, tokens_BT):
            return self.logits(self.tokens(tokens_BT))

    assert total(Tiny(), torch.zeros(B, T, dtype=torch.long)) == 6 * B * T * 40 * D


class Decoder(nn.Module):
    """A layer with G heads of keys and values for H of queries, and a gated perceptron of width F, not 4 D."""

    H, G, K, F = 4, 2, 6, 20

    def __init__(self):
        super().__init__()
        self.q, self.o = nn.Linear(D, self.H * self.K), nn.Linear(self.H * self.K, D)
        self.kv = nn.Linear(D, 2 * self.G * self.K)
        self.gate, self.up, self.down = nn.Linear(D, self.F), nn.Linear(D, self.F), nn.Linear(self.F, D)

    def forward(self, x_BTD):
        q = self.q(x_BTD).unflatten(-1, (self.H, self.K)).transpose(1, 2)
        k, v = (part.unflatten(-1, (self.G, self.K)).transpose(1, 2) for part in self.kv(x_BTD).chunk(2, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x_BTD = x_BTD + self.o(mixed.transpose(1, 2).flatten(-2))
        return x_BTD + self.down(F.silu(self.gate(x_BTD)) * self.up(x_BTD))


def test_grouped_queries_and_a_perceptron_of_any_width():
    h, g, k, f = Decoder.H, Decoder.G, Decoder.K, Decoder.F
    weights = 2 * D * h * k + D * 2 * g * k + 3 * D * f
    into = D * h * k + D * 2 * g * k  # whose inputs need no gradient here
    expected = B * T * (6 * weights - 2 * into + 12 * h * k * T)
    assert total(Decoder(), torch.randn(B, T, D)) == expected


def test_experts_cost_what_is_active():
    """Each expert takes 2 T / E tokens (Zhou et al. 2022, "Expert choice routing"): two of E work on a token."""
    experts, width = 8, 24

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.router = nn.Linear(D, D), nn.Linear(D, experts, bias=False)
            self.up = nn.Parameter(torch.zeros(experts, D, width))
            self.down = nn.Parameter(torch.zeros(experts, width, D))

        def forward(self, x_ND):
            x_ND = self.embed(x_ND)
            gate_EC, token_EC = self.router(x_ND).softmax(-1).T.topk(2 * len(x_ND) // experts)
            taken_ECD = torch.bmm(torch.bmm(x_ND[token_EC], self.up).relu(), self.down)
            return x_ND.index_add(0, token_EC.flatten(), (gate_EC[..., None] * taken_ECD).flatten(0, 1))

    tokens = 32
    active = 6 * 2 * tokens * 2 * D * width
    assert total(Experts(), torch.randn(tokens, D)) == active + 6 * tokens * D * experts + 4 * tokens * D * D


@pytest.mark.parametrize("layers", [1, 2])
def test_a_recurrent_layer_costs_8_h_d_plus_h_forward_and_twice_that_backward(layers):
    h = 10

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.LSTM(D, h, num_layers=layers, batch_first=True)

        def forward(self, x_BTD):
            return self.cells(x_BTD)[0]

    forward = B * T * (8 * h * (D + h) + (layers - 1) * 8 * h * (h + h))
    # Neither the input nor the first state, which is zero, needs a gradient.
    spared = 8 * B * T * h * D + layers * 8 * B * h * h
    assert total(Recurrent(), torch.randn(B, T, D)) == 3 * forward - spared


def test_a_convolution_with_groups_and_stride():
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2))
    first, second = 2 * 36 * 4 * 4, 2 * 9 * 8 * 2 * 9
    assert total(model, torch.randn(B, 4, 6, 6)) == B * (3 * (first + second) - first)


def test_a_transposed_convolution_spreads_each_input():
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ConvTranspose2d(4, 8, 3, stride=2, groups=2))
    first, second = 2 * 36 * 4 * 4, 2 * 36 * 4 * 4 * 9  # each of 36 x 4 inputs meets 4 filters of 9
    assert total(model, torch.randn(B, 4, 6, 6)) == B * (3 * (first + second) - first)


# ---- recomputation


def recomputed(recompute, blocks=("0", "1")):
    block = lambda: nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))  # noqa: E731
    spec = RunSpec(workload="x", strategy="x", recompute=recompute)
    return sum(
        training_flops(
            axes.applied(job(nn.Sequential(block(), block()).to("meta"), torch.randn(B, D), blocks), spec)
        ).values()
    )


def test_full_recomputation_repeats_all_but_what_nothing_needs():
    """The last product of a block is not computed again: nobody needs its result for a gradient."""
    product = 2 * B * D * 4 * D
    assert recomputed("none") == 2 * 2 * 3 * product - product
    assert recomputed("full") == recomputed("none") + 2 * product
    assert recomputed("selective") == recomputed("none")  # products are kept


def test_accumulation_and_parallelism_change_nothing(tmp_path):
    from parbench.builder import Builder

    def counted(**changes):
        spec = RunSpec(**{"workload": "gpt", "strategy": "tensor", "size": "smoke", "global_batch_size": 8} | changes)
        found = step_flops(Builder(torch.device("cpu")), workload("gpt", tmp_path), spec)
        assert found.reason is None
        return sum(found.model.values())

    assert counted(world_size=4) == counted(world_size=1) == counted(accumulate=4)
    # Four micro-batches of one size are four times the tokens of one.
    assert counted(accumulate=4, global_batch_size=32) == 4 * counted()


# ---- what cannot be counted


@pytest.mark.parametrize(
    ("call", "flops"),
    [
        (lambda a: torch.mv(a, a[0]), 2 * D * D),
        (lambda a: torch.addmv(a[0], a, a[0]), 2 * D * D),
        (lambda a: torch.dot(a[0], a[1]), 2 * D),
        (lambda a: torch.addbmm(a, a[None], a[None]), 2 * D**3),
        (lambda a: torch.einsum("ij,jk->ik", a, a), 2 * D**3),
        (lambda a: F.interpolate(a[None, None], scale_factor=2, mode="bilinear"), 0),
        (lambda a: F.layer_norm(a, (D,)).softmax(0), 0),
    ],
)
def test_products_of_vectors_too_and_nothing_that_is_none(call, flops):
    with FlopCount() as count:
        call(torch.zeros(D, D, device="meta"))
    assert sum(count.by_operator.values()) == flops


@pytest.mark.parametrize(
    "call",
    [
        lambda: nn.LSTM(D, D)(torch.zeros(2, 1, D)),
        lambda: F.scaled_dot_product_attention(*[torch.zeros(1, 2, 4, 8)] * 3),
        lambda: nn.TransformerEncoderLayer(D, 4, batch_first=True).eval()(torch.zeros(1, 2, D)),
    ],
    ids=["LSTM", "attention", "encoder"],
)
def test_a_fused_operator_that_would_count_as_nothing_is_an_error(call):
    """On a CPU these are one operator each, for which there is no formula."""
    with torch.no_grad(), FlopCount(), pytest.raises(UncountedOperator, match=r"add one to parbench\.flops"):
        call()


def test_a_model_that_needs_values_has_a_reason_instead_of_a_number():
    from parbench.builder import Builder

    class Values:
        def build(self, size, seed, device, batch):
            class Looks(nn.Linear):
                def forward(self, x):
                    return super().forward(x) * (2 if x.sum() > 0 else 1)

            return job(Looks(D, D, device=device), torch.zeros(B, D))

        def default_batch_size(self, size):
            return B

    found = step_flops(Builder(torch.device("cpu")), Values(), RunSpec(workload="x", strategy="x"))
    assert found.model == {}
    assert "meta device" in found.reason
