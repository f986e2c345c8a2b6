"""What compressors make of given numbers, worked out by hand or by a few lines of plain Python."""

import math

import numpy as np
import pytest
import torch

from parbench.compact import dense
from parbench.conformance.compressed import Ranks
from parbench.registry import Registry
from parbench_strategies.compression import _bits, _indices, _probabilities, _ratio, _recovery, _selection
from parbench_strategies.compression._hashing import Hashing

REGISTRY = Registry()


def resolved(text):
    return REGISTRY.resolve("compressor", text)


def passed(text, numbers, step=0):
    """Return what a message of these numbers stands for, whether or not it is shorter."""
    compressor = resolved(text)
    compressor.step = step
    grad = torch.tensor(numbers)
    return dense(compressor.decode(compressor.encode(grad, "k"), grad, "k")).tolist()


# ---- packing


def test_bits_are_packed_eight_to_a_byte_little_end_first():
    bits = torch.tensor([1, 0, 1, 1, 0, 1, 1, 0, 1], dtype=torch.bool)
    assert _bits.packed(bits).tolist() == [1 + 4 + 8 + 32 + 64, 1]
    assert torch.equal(_bits.unpacked(_bits.packed(bits), 9), bits)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1003])
@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8])
def test_codes_survive_packing_in_as_many_bytes_as_said(count, bits):
    codes = torch.from_numpy(np.random.default_rng(count).integers(0, 2**bits, count, dtype=np.uint8))
    packed = _bits.packed_codes(codes, bits)
    assert packed.numel() == _bits.bytes_of_bits(count, bits) == (count if bits == 8 else bits * math.ceil(count / 8))
    assert torch.equal(_bits.unpacked_codes(packed, count, bits), codes)


def test_bits_are_packed_alike_without_numpy():
    """The arithmetic that other devices take, here on the host: a tensor that says it is elsewhere."""
    bits = torch.from_numpy(np.random.default_rng(0).random(203) < 0.5)

    class Elsewhere(torch.Tensor):
        @property
        def device(self):
            return torch.device("cuda")

    packed = _bits.packed(bits.as_subclass(Elsewhere))
    assert packed.as_subclass(torch.Tensor).tolist() == np.packbits(bits.numpy(), bitorder="little").tolist()
    assert torch.equal(_bits.unpacked(packed.as_subclass(Elsewhere), 203).as_subclass(torch.Tensor), bits)


@pytest.mark.parametrize(("elements", "size"), [(1, 1), (256, 1), (257, 2), (65536, 2), (65537, 4), (2**32 + 1, 8)])
def test_indices_take_the_smallest_type_that_fits(elements, size):
    places = torch.tensor([0, elements // 2, elements - 1])
    narrow = _indices.narrowed(places, elements)
    assert narrow.element_size() == size
    assert torch.equal(_indices.widened(narrow), places)


@pytest.mark.parametrize(
    ("elements", "ratio", "sent"), [(1, 0.01, 1), (100, 0.07, 7), (101, 0.01, 2), (0, 0.5, 0), (9, 1, 9)]
)
def test_a_share_is_rounded_up(elements, ratio, sent):
    assert _ratio.kept(elements, ratio) == sent


def test_warm_up_goes_from_a_quarter_down_by_a_quarter_each_quarter():
    found = [_ratio.warmed(0.001, step, 8) for step in (0, 2, 4, 6, 8, 100)]
    assert found == pytest.approx([1 / 4, 1 / 16, 1 / 64, 1 / 256, 0.001, 0.001])
    assert _ratio.warmed(0.1, 3, 8) == 0.1  # never less than what is wanted in the end


# ---- selection


@pytest.mark.parametrize("seed", range(6))
def test_the_largest_by_sample_are_the_largest(seed):
    numbers = torch.Generator().manual_seed(seed)
    flat = torch.randn(30_011, generator=numbers) ** (2 * (seed % 3) + 1)
    for k in (1, 17, 300, 3000, 9000):
        right = np.sort(np.abs(flat.numpy()))[-k:]
        found = _selection.largest(flat, k)
        assert len(set(found.tolist())) == k
        assert np.array_equal(np.sort(flat[found].abs().numpy()), right)


def test_the_largest_of_ties_sparse_and_sorted_numbers():
    for flat in (torch.ones(20_000), torch.zeros(20_000), torch.arange(20_000.0), torch.eye(200).reshape(-1)):
        found = _selection.largest(flat, 150)
        assert len(set(found.tolist())) == 150
        assert float(flat[found].sum()) == float(flat.sort().values[-150:].sum())


def test_nearly_the_largest_are_as_many_and_above_a_bound_that_few_more_reach():
    flat = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    found = _selection.about_largest(flat, 2000)
    assert len(set(found.tolist())) == 2000
    reach = int((flat.abs() >= float(flat[found].abs().min())).sum())
    # The sample has 2000 / 200000 of 8333 numbers, 83 +- 9, and 4 deviations are added: at most 8 of them beyond.
    assert 2000 <= reach < 2000 * (1 + 8 / 9)


# ---- codecs


def test_efsignsgd_sends_the_mean_magnitude():
    assert passed("efsignsgd", [1.0, -3.0, 2.0, -2.0]) == [2.0, -2.0, 2.0, -2.0]


def test_onebit_sends_the_mean_of_each_sign():
    assert passed("onebit", [1.0, -3.0, 2.0, -2.0, 0.0]) == [1.0, -2.5, 1.0, -2.5, 1.0]
    assert passed("onebit", [-3.0, -1.0]) == [-2.0, -2.0]


def test_truncate_keeps_seven_bits_after_the_first_and_rounds_to_zero():
    given = [1 + 2**-7 + 2**-8, -(2 - 2**-20), 3.0e-39, 0.0]
    assert passed("truncate", given)[:2] == [1 + 2**-7, -(2 - 2**-7)]


def test_bf16_rounds_to_the_nearest():
    assert passed("bf16", [1 + 2**-8 + 2**-10, 1 + 2**-9]) == [1 + 2**-7, 1.0]


def test_quantize8_has_127_steps_of_each_sign():
    assert passed("quantize8", [-127.0, 63.4, 0.4, 126.6]) == [-127.0, 63.0, 0.0, 127.0]


def test_natural_keeps_powers_of_two_and_rounds_others_with_the_probability_of_their_fraction():
    powers = [1.0, -2.0, 2.0**-126, 2.0**100, 0.0]
    assert passed("natural", powers) == powers
    found = passed("natural", [-3.0] * 10_000 + [5.0] * 10_000)
    assert set(found[:10_000]) == {-2.0, -4.0}
    assert set(found[10_000:]) == {4.0, 8.0}
    # 5000 and 2500 expected; six deviations of a binomial are 300 and 260.
    assert abs(found.count(-4.0) - 5000) < 300
    assert abs(found.count(8.0) - 2500) < 260


def test_terngrad_sends_plus_minus_the_largest_or_nothing():
    found = passed("terngrad(clip_deviations=inf)", [4.0] + [-1.0] * 10_000)
    assert found[0] == 4.0
    assert set(found[1:]) == {0.0, -4.0}
    assert abs(found.count(-4.0) - 2500) < 260
    # Clipped at 2.5 times the root mean square of 4 and 99 zeros: 2.5 x 0.4.
    assert passed("terngrad", [4.0] + [0.0] * 99)[0] == 1.0


def test_qsgd_sends_levels_of_the_norm_of_a_bucket():
    # Norms are 5 and 10, and every number is on a level already.
    assert passed("qsgd(levels=5, bucket=2)", [3.0, -4.0, 0.0, 10.0, 0.0]) == pytest.approx([3, -4, 0, 10, 0])
    found = passed("qsgd(levels=1, bucket=2)", [3.0, -4.0] * 5000)
    assert set(found[::2]) == {0.0, 5.0}
    assert set(found[1::2]) == {0.0, -5.0}
    assert abs(found.count(5.0) - 3000) < 6 * math.sqrt(5000 * 0.6 * 0.4)
    assert abs(found.count(-5.0) - 4000) < 6 * math.sqrt(5000 * 0.8 * 0.2)


@pytest.mark.parametrize(("levels", "bits"), [(1, 2), (3, 3), (7, 4), (16, 6), (127, 8)])
def test_qsgd_takes_the_bits_of_its_levels(levels, bits):
    assert resolved(f"qsgd(levels={levels}, bucket=64)").length((800,), 4) == 100 * bits + 4 * 13


def vote(grads, **arguments):
    text = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return Ranks(resolved(f"signsgd({text})"), len(grads)).step([{"k": g} for g in grads]).averages[0]["k"]


def test_signsgd_follows_the_majority():
    """Independent of bits: the sign of the sum of signs; a rank of zeros does not vote, and no majority is nothing."""
    drawn = torch.Generator().manual_seed(0)
    for ranks in (2, 3, 4):
        grads = [torch.randn(1000, generator=drawn) for _ in range(ranks)]
        right = torch.stack([g.sign() for g in grads]).sum(0).sign()
        assert torch.equal(vote(grads, scaled=False), right)
        size = sum(float(g.abs().mean()) for g in grads) / ranks
        assert torch.allclose(vote(grads), right * size)
        assert torch.equal(vote([*grads, torch.zeros(1000)], scaled=False), right)


# ---- random elements


@pytest.mark.parametrize(("name", "elements"), [("randomk", 37), ("randomk", 40), ("random_block", 37)])
def test_every_element_is_sent_equally_often_and_none_twice(name, elements):
    compressor = resolved(f"{name}(ratio=0.25)")
    k, draws = math.ceil(elements / 4), 4000
    counts = torch.zeros(elements)
    for step in range(draws):
        compressor.step = step
        grad = torch.arange(1.0, elements + 1)
        message = compressor.encode(grad, "k")
        assert len(set(message.tolist())) == k
        counts += dense(compressor.decode(message, grad, "k")) != 0
    expected = draws * k / elements
    assert float((counts - expected).abs().max()) < 6 * math.sqrt(expected * (1 - k / elements))


def test_random_block_is_a_stretch_that_goes_round():
    compressor = resolved("random_block(ratio=0.3)")
    starts = set()
    for step in range(200):
        compressor.step = step
        message = compressor.encode(torch.arange(10.0), "k").tolist()
        assert message == [(message[0] + j) % 10 for j in range(3)]
        starts.add(message[0])
    assert starts == set(range(10))


# ---- Wangni et al.


def test_the_closed_form_by_hand():
    """Of 4 1 1 1 1: for epsilon 1 nothing is certain and lambda is 8 / 40; for 1/2 the first is, and it is 4 / 14."""
    sizes = torch.tensor([4.0, 1, 1, 1, 1], dtype=torch.float64)
    assert _probabilities.closed_form(sizes, 1.0).tolist() == pytest.approx([0.8] + [0.2] * 4)
    assert _probabilities.closed_form(sizes, 0.5).tolist() == pytest.approx([1.0] + [2 / 7] * 4)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 10.0])
def test_the_closed_form_uses_all_of_the_variance_that_is_allowed(epsilon):
    drawn = torch.Generator().manual_seed(1)
    sizes = (torch.randn(2000, dtype=torch.float64, generator=drawn) ** 3).abs()
    p = _probabilities.closed_form(sizes / sizes.max(), epsilon)
    assert float((sizes**2 / p).sum() / (sizes**2).sum()) == pytest.approx(1 + epsilon)
    # The same by trying every k in turn, as the paper states it.
    ordered = np.sort(sizes.numpy())[::-1]
    total = (ordered**2).sum()
    k = next(k for k in range(2000) if ordered[k] * ordered[k:].sum() <= epsilon * total + (ordered[k:] ** 2).sum())
    scale = ordered[k:].sum() / (epsilon * total + (ordered[k:] ** 2).sum())
    assert np.allclose(p.numpy(), np.minimum(scale * sizes.numpy(), 1))


def test_the_greedy_choice_by_hand():
    sizes = torch.tensor([4.0, 1, 1, 1, 1], dtype=torch.float64)
    assert _probabilities.greedy(sizes, 0.4).tolist() == pytest.approx([1.0] + [0.25] * 4)
    assert _probabilities.greedy(sizes, 0.6).tolist() == pytest.approx([1.0] + [0.5] * 4)


@pytest.mark.parametrize("method", ["closed", "greedy"])
def test_wangni_sends_values_that_are_certain_and_one_magnitude_of_the_others(method):
    grad = torch.randn(5000, generator=torch.Generator().manual_seed(3)) ** 3
    compressor = resolved(f"wangni(method={method}, density=0.1, epsilon=1.0)")
    certain, chosen, values, _, magnitude = compressor.encode(grad, "k")
    assert torch.equal(values, grad[_indices.widened(certain)])
    found = dense(compressor.decode(compressor.encode(grad, "k"), grad, "k"))
    others = found[_indices.widened(chosen)]
    assert torch.equal(others.abs(), magnitude.expand_as(others))
    assert torch.equal(others.sign(), grad[_indices.widened(chosen)].sign())
    assert int((found != 0).sum()) == len(certain) + len(chosen)
    assert float(values.abs().min()) >= float(magnitude) * (1 - 1e-6)


# ---- sketches, projections, whole numbers


def test_sketches_add_up_and_large_numbers_are_found_in_them():
    hashing = Hashing(5000, 5, 1000, torch.Generator().manual_seed(0), torch.device("cpu"))
    a, b = torch.randn(5000), torch.randn(5000)
    assert torch.allclose(hashing.sketch(a) + hashing.sketch(b), hashing.sketch(a + b), atol=1e-4)
    few = torch.zeros(5000)
    few[[7, 300, 4999]] = torch.tensor([5.0, -9.0, 4.0])
    assert torch.allclose(hashing.estimates(hashing.sketch(few)), few)


def test_count_sketch_averages_the_heavy_numbers_exactly():
    drawn = torch.Generator().manual_seed(0)
    grads = [0.01 * torch.randn(4000, generator=drawn) for _ in range(3)]
    heavy = torch.randperm(4000, generator=drawn)[:4]
    for grad in grads:
        grad[heavy] += 5 * torch.randn(4, generator=drawn).sign()
    mean = torch.stack(grads).mean(0)
    # Signs differ between ranks: a mean of three is 5 or 5/3 in size, and 400 cells hold 4 of them.
    ranks = Ranks(resolved("count_sketch(ratio=0.001, width=0.1)"), 3)
    found = ranks.step([{"k": g} for g in grads]).averages[0]["k"]
    assert set(found.nonzero().view(-1).tolist()) == set(heavy.tolist())
    assert torch.allclose(found[heavy], mean[heavy])


def test_sparse_blocks_are_recovered_from_their_projections():
    drawn = torch.Generator().manual_seed(0)
    blocks = torch.zeros(50, 256)
    for row in blocks:
        row[torch.randperm(256, generator=drawn)[:8]] = torch.randn(8, generator=drawn) + 2
    projection = torch.randn(96, 256, generator=drawn) / math.sqrt(96)
    found = _recovery.recovered(blocks @ projection.T, projection, 8, 60)
    errors = (found - blocks).norm(dim=1) / blocks.norm(dim=1)
    # Twelve measurements a number: recovery is the rule, though no theorem holds for so few.
    assert int((errors < 1e-3).sum()) >= 45
    assert float(errors.max()) < 1


def test_whole_numbers_of_a_shared_scale_by_hand():
    """Two ranks have 63 steps each up to the largest of both, 6.3: one step is 0.1."""
    one, two = torch.full((100,), 0.24), torch.full((100,), -0.31)
    two[0] = 6.3
    found = Ranks(resolved("shared_scale_int(stochastic=False)"), 2).step([{"k": one}, {"k": two}])
    assert found.averages[0]["k"].tolist() == pytest.approx([(0.2 + 6.3) / 2] + [(0.2 - 0.3) / 2] * 99, abs=1e-6)
    assert found.contributions[1]["k"].tolist() == pytest.approx([6.3] + [-0.3] * 99, abs=1e-6)


# ---- PowerSGD


def test_powersgd_projects_the_mean_on_its_power_iteration():
    """By numpy: what is found is the mean of the ranks, projected on what it spans, at last its largest directions."""
    drawn = torch.Generator().manual_seed(0)
    grads = [torch.randn(20, 12, generator=drawn) for _ in range(3)]
    mean = np.mean([g.double().numpy() for g in grads], axis=0)
    ranks = Ranks(resolved("powersgd(rank=2)"), 3)
    for _ in range(300):
        found = ranks.step([{"k": g} for g in grads]).averages[0]["k"].double().numpy()
        left = np.linalg.svd(found)[0][:, :2]
        assert np.allclose(left @ left.T @ mean, found, atol=1e-4)
    u, s, v = np.linalg.svd(mean)
    assert np.allclose(found, (u[:, :2] * s[:2]) @ v[:2], atol=1e-3)


def test_powersgd_gives_matrices_of_its_rank_back_whatever_else_has_their_shape():
    drawn = torch.Generator().manual_seed(0)
    grads = {
        name: torch.randn(30, 2, generator=drawn) @ torch.randn(2, 20, generator=drawn) for name in ("a", "b", "c", "d")
    }
    found = Ranks(resolved("powersgd(rank=2)"), 2).step([grads, grads]).averages[0]
    for name, grad in grads.items():
        assert torch.allclose(found[name], grad, atol=1e-4)


# ---- arguments


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topk(ratio=0)", "above 0 and at most 1, got 0"),
        ("topk(ratio=1.5)", "above 0 and at most 1, got 1.5"),
        ("topk(per=model)", "one of tensor, group"),
        ("threshold(value=inf)", "above 0 and finite, got inf"),
        ("qsgd(levels=128)", "from 1 to 127, got 128"),
        ("qsgd(bucket=0)", "got 0"),
        ("powersgd(rank=0)", "at least 1, got 0"),
        ("dgc(clip=0)", "above 0 .inf cuts nothing., got 0"),
        ("dgc(warmup_steps=-1)", "at least 0, got -1"),
        ("terngrad(clip_deviations=-1)", "must be above 0"),
        ("wangni(epsilon=0)", "above 0 and finite, got 0"),
        ("csc(chunk=0)", "at least 1, got 0"),
        ("micro(scaling=other)", "one of published, mended"),
        ("count_sketch(rows=0)", "from 1 to 64, got 0"),
        ("pactrain(patience=0)", "at least 1, got 0"),
        ("block_projection(sparsity=9, measurements=8)", "must hold, got 9, 8, 256"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(text, words):
    from parbench import UsageError

    with pytest.raises(UsageError, match=words):
        resolved(text)
