"""Parameters and FLOPs of the standard models against counts by hand; a multiply-add is two.

Forward costs 2 per weight and place, backward 4: 2 for the gradient of the weight, 2 for that of what came in, which
nobody needs of the data itself.
"""

import itertools

import pytest
from workload_cases import META, workload

from parbench.flops import training_flops
from parbench.registry import Registry


def built(name, size, batch=3):
    return workload(name, None).build(size, 0, META, batch)


def parameters(name, size):
    return sum(p.numel() for p in built(name, size).model.parameters())


def flops(name, size, batch=3):
    return sum(training_flops(built(name, size, batch)).values())


# From the tables of torchvision's weights and Hugging Face's `num_parameters()` (BertForMaskedLM, GPT2LMHeadModel).
PUBLISHED = {
    ("alexnet", "full"): 61_100_840,
    ("bert", "base"): 109_514_298,
    ("bert", "large"): 335_174_458,
    ("googlenet", "full"): 6_624_904,
    ("gpt", "gpt2-large"): 774_030_080,
    ("gpt", "gpt2-xl"): 1_557_611_200,
    ("resnet", "18"): 11_689_512,
    ("resnet", "50"): 25_557_032,
    ("vgg", "16"): 138_357_544,
    ("vgg", "19"): 143_667_240,
    ("vit", "b16"): 86_567_656,
}


@pytest.mark.parametrize(("name", "size"), PUBLISHED)
def test_a_published_size_has_the_published_number_of_parameters(name, size):
    assert parameters(name, size) == PUBLISHED[name, size]
    assert workload(name, None).parameters[size] == PUBLISHED[name, size]


def test_resnet_20_is_the_one_for_cifar():
    """0.27 M parameters (table 6 of He et al.): three stages of three blocks; shortcuts of zeros have none."""
    stage = lambda i, o: 9 * (i * o + 5 * o * o) + 2 * 6 * o  # noqa: E731 - six convolutions and their norms
    assert parameters("resnet", "small") == (27 * 16 + 32) + stage(16, 16) + stage(16, 32) + stage(32, 64) + 650


# ---- convolutions


def after(side, kernel, stride, padding):
    return (side + 2 * padding - kernel) // stride + 1


def convolutions(batch, layers):
    """Cost of convolutions given as (side of the result, kernel, channels in, channels out), the first on data."""
    costs = [2 * side**2 * kernel**2 * i * o for side, kernel, i, o in layers]
    return batch * (3 * sum(costs) - costs[0])


def linear(batch, *widths):
    return 6 * batch * sum(a * b for a, b in itertools.pairwise(widths))


def basic(side, widths, blocks, shortcut):
    inputs = widths[0]
    for stage, width in enumerate(widths):
        for k in range(blocks[stage]):
            if stage and not k:
                side = after(side, 3, 2, 1)
                if shortcut:
                    yield (side, 1, inputs, width)
            yield from ((side, 3, inputs, width), (side, 3, width, width))
            inputs = width


def bottlenecks(side, widths, blocks):
    inputs = widths[0]
    for stage, width in enumerate(widths):
        for k in range(blocks[stage]):
            yield (side, 1, inputs, width)
            if stage and not k:
                side = after(side, 3, 2, 1)
            yield from ((side, 3, width, width), (side, 1, width, 4 * width))
            if not k:
                yield (side, 1, inputs, 4 * width)
            inputs = 4 * width


def test_resnets():
    small = [(32, 3, 3, 16), *basic(32, (16, 32, 64), (3, 3, 3), shortcut=False)]
    assert flops("resnet", "small") == convolutions(3, small) + linear(3, 64, 10)
    stages = (64, 128, 256, 512)
    eighteen = [(112, 7, 3, 64), *basic(56, stages, (2, 2, 2, 2), shortcut=True)]
    assert flops("resnet", "18") == convolutions(3, eighteen) + linear(3, 512, 1000)
    fifty = [(112, 7, 3, 64), *bottlenecks(56, stages, (3, 4, 6, 3))]
    assert flops("resnet", "50") == convolutions(3, fifty) + linear(3, 2048, 1000)


@pytest.mark.parametrize(("size", "depths"), [("16", (2, 2, 3, 3, 3)), ("19", (2, 2, 4, 4, 4))])
def test_vggs(size, depths):
    layers, inputs = [], 3
    for stage, depth in enumerate(depths):
        for _ in range(depth):
            width = (64, 128, 256, 512, 512)[stage]
            layers.append((224 >> stage, 3, inputs, width))
            inputs = width
    assert flops("vgg", size) == convolutions(3, layers) + linear(3, 512 * 7 * 7, 4096, 4096, 1000)


def test_alexnet():
    layers = [(55, 11, 3, 64), (27, 5, 64, 192), (13, 3, 192, 384), (13, 3, 384, 256), (13, 3, 256, 256)]
    assert flops("alexnet", "full") == convolutions(3, layers) + linear(3, 256 * 6 * 6, 4096, 4096, 1000)


def test_googlenet():
    table = """64 96 128 16 32 32; 128 128 192 32 96 64; 192 96 208 16 48 64; 160 112 224 24 64 64;
               128 128 256 24 64 64; 112 144 288 32 64 64; 256 160 320 32 128 128; 256 160 320 32 128 128;
               384 192 384 48 128 128"""
    layers, inputs = [(112, 7, 3, 64), (56, 1, 64, 64), (56, 3, 64, 192)], 192
    for side, row in zip([28] * 2 + [14] * 5 + [7] * 2, table.split(";"), strict=True):
        a, b, c, d, e, f = map(int, row.split())
        layers += [(side, 1, inputs, a), (side, 1, inputs, b), (side, 3, b, c), (side, 1, inputs, d)]
        layers += [(side, 3, d, e), (side, 1, inputs, f)]
        inputs = a + c + e + f
    assert flops("googlenet", "full") == convolutions(3, layers) + linear(3, 1024, 1000)


@pytest.mark.parametrize(("size", "widths"), [("smoke", [16, 16, 16, 4]), ("134m", [*[4096] * 9, 10])])
def test_perceptrons(size, widths):
    assert flops("mlp", size) == linear(3, *widths) - 2 * 3 * widths[0] * widths[1]
    assert parameters("mlp", size) == sum(a * b + b for a, b in itertools.pairwise(widths))


# ---- transformers: 6 per weight and 12 L D T of attention, per token (Chowdhery et al. 2022, "PaLM", appendix B)


def attended(layers, width, context):
    return 12 * layers * width * context


@pytest.mark.parametrize(("size", "shape"), [("smoke", (2, 32, 16, 128)), ("base", (12, 768, 512, 30522))])
def test_berts(size, shape):
    layers, width, context, vocabulary = shape
    weights = 12 * layers * width**2 + width**2 + vocabulary * width  # blocks, transform, logits
    assert flops("bert", size) == 3 * context * (6 * weights + attended(layers, width, context))


@pytest.mark.parametrize(("size", "shape"), [("smoke", (2, 32, 16, 8, 4)), ("b16", (12, 768, 224, 16, 1000))])
def test_vision_transformers(size, shape):
    layers, width, side, patch, classes = shape
    patches = (side // patch) ** 2
    positions = patches + 1
    blocks = positions * (6 * 12 * layers * width**2 + attended(layers, width, positions))
    assert flops("vit", size) == 3 * (4 * patches * 3 * patch**2 * width + blocks + 6 * width * classes)


@pytest.mark.parametrize(("size", "s"), [("smoke", (2, 32, 16, 128, 4)), ("small", (4, 128, 64, 1024, 8))])
def test_two_experts_work_on_a_token(size, s):
    layers, width, context, vocabulary, experts = s
    mixed = layers // 2
    weights = 12 * layers * width**2 + mixed * 8 * width**2 + vocabulary * width  # a second perceptron where mixed
    per_token = 6 * (weights + mixed * width * experts) + attended(layers, width, context)
    assert flops("moe-gpt", size) == 3 * context * per_token


# ---- recurrent layers: four gates, 2 per weight and place; the first state is zero and needs no gradient


def lstms(batch, length, *widths, data=False):
    """Cost of LSTM layers one after the other: 8 H (D + H) forward (docs/metrics.md), twice that backward."""
    total = 0
    for k, (d, h) in enumerate(itertools.pairwise(widths)):
        total += batch * (3 * length * 8 * h * (d + h) - 8 * h * h)
        total -= batch * length * 8 * h * d if data and not k else 0
    return total


def test_a_recurrent_language_model(tmp_path):
    job = workload("lstm", tmp_path).build("smoke", 0, META, 3)
    assert sum(training_flops(job).values()) == lstms(3, 16, 16, 24, 24) + linear(3 * 16, 24, 97)
    d, h = 512, 2336
    layers = [4 * h * (a + h + 2) for a in (d, h)]  # two matrices and two biases for each of four gates
    large = workload("lstm", tmp_path).build("70m", 0, META, 3)
    assert sum(p.numel() for p in large.model.parameters()) == 97 * d + sum(layers) + 97 * (h + 1)
    assert sum(layers) > 70e6


def test_recurrent_classifiers():
    assert flops("digit-rows", "small") == lstms(3, 8, 8, 64, 64, data=True) + linear(3, 64, 10)
    assert flops("disruption", "smoke") == lstms(3, 16, 14, 16, 16, data=True) + linear(3 * 16, 16, 1)
    assert parameters("disruption", "70m") > 70e6


def test_encoders_and_decoders():
    """The decoder's first state is the encoder's last, so only the encoder and the decoder's cell spare anything."""
    h, length, vocabulary = 24, 6, 12
    decoder = 3 * 3 * length * 8 * h * (h + h)
    attention = 12 * 3 * length * length * h  # scores and mixture, 2 each forward, twice that backward
    head = linear(3 * length, 2 * h, h, vocabulary)
    assert flops("seq2seq", "smoke") == lstms(3, length, h, h) + decoder + attention + head


def test_a_language_model_with_sampled_softmax():
    """Scores are products of single rows, which no matrix unit computes."""
    row, hidden, length = 512, 2048, 20
    assert flops("sparse-lm", "1b-word") == lstms(3, length, row, hidden) + linear(3 * length, hidden, row)
    expected = 2 * 800_000 * row + 4 * hidden * (row + hidden + 2) + row * (hidden + 1)
    assert parameters("sparse-lm", "1b-word") == expected


@pytest.mark.parametrize(("size", "s"), [("smoke", (4, 2, 8)), ("lamp32", (32, 4, 64))])
def test_a_u_net(size, s):
    filters, depth, side = s
    widths = [filters << k for k in range(depth)]
    layers = []  # (side, kernel, in, out); sides are cubed
    for k, width in enumerate(widths):
        layers += [(side >> k + 1, 3, widths[k - 1] if k else 1, width), (side >> k + 1, 3, width, width)]
    for k in range(depth - 1, 0, -1):
        layers.append((side >> k, 1, widths[k], widths[k - 1]))
        layers += [(side >> k, 3, 2 * widths[k - 1], widths[k - 1]), (side >> k, 3, widths[k - 1], widths[k - 1])]
    layers += [(side, 1, filters, filters), (side, 3, filters, filters), (side, 3, filters, filters)]
    layers.append((side, 1, filters, 2))
    costs = [2 * n**3 * k**3 * i * o for n, k, i, o in layers]
    assert flops("unet3d", size) == 3 * (3 * sum(costs) - costs[0])


@pytest.mark.parametrize(("size", "shape"), [("smoke", (1, 32, 256, 16)), ("base", (12, 768, 2500, 10))])
def test_a_transformer_on_series(size, shape):
    layers, width, measurements, stride = shape
    positions = measurements // stride
    stem = 4 * positions * 12 * stride * width
    blocks = positions * (6 * 12 * layers * width**2 + attended(layers, width, positions))
    assert flops("ecg", size) == 3 * (stem + blocks + 6 * width * 4)


def test_a_product_of_matrices(tmp_path):
    assert flops("matrix-recovery", "small", 100) == linear(100, 100, 100, 100, 100) - 2 * 100**3
    small = Registry().resolve("workload", "matrix-recovery(compressed=True)").build("small", 0, META, 100)
    # 2 d r + (L - 2) r^2 instead of L d^2 (Kwon et al. 2024), with r twice the rank
    assert sum(p.numel() for p in small.model.parameters()) == 2 * 100 * 10 + 10 * 10
