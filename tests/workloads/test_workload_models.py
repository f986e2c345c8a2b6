"""What is particular to the standard models: what they look at, and how their data is made."""

import pytest
import torch
from workload_cases import CPU, META, MORE, workload

from parbench.errors import UsageError


def built(name, batch=4, size="smoke"):
    return workload(name, None).build(size, 0, CPU, batch)


def test_bert_is_asked_for_masked_tokens_alone_and_looks_both_ways():
    job = built("bert")
    batch = job.batch(0)
    masked = batch.targets != -100
    assert masked.sum(1).tolist() == [2] * 4  # 15 % of 16
    assert (batch.inputs[masked] == 127).all()
    assert (batch.inputs[~masked] < 127).all()
    changed = batch.inputs.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 127
    difference = (job.model(batch.inputs) - job.model(changed)).abs().amax(-1)
    assert (difference > 0).all()


def test_berts_loss_is_the_mean_over_masked_tokens():
    job = built("bert")
    batch = job.batch(0)
    with torch.no_grad():
        outputs = job.model(batch.inputs)
    by_hand = 0.0
    for logits_TV, targets_T in zip(outputs, batch.targets, strict=True):
        wanted = [-logits_TV[t].log_softmax(-1)[target] for t, target in enumerate(targets_T.tolist()) if target >= 0]
        by_hand += float(sum(wanted) / len(wanted))
    assert float(job.loss(outputs, batch)) == pytest.approx(by_hand, rel=1e-5)


def test_experts_take_the_tokens_that_score_highest_for_them():
    from parbench.workloads.moe_gpt import Experts

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        experts = Experts(width=4, experts=2)
        for p in experts.parameters():
            torch.nn.init.normal_(p)
        x_BTD = torch.randn(3, 6, 4)
    scores = experts.router(x_BTD).softmax(-1)
    expected = torch.zeros_like(x_BTD)
    for b in range(3):
        for e in range(2):
            for t in sorted(range(6), key=lambda t: -scores[b, t, e])[:6]:  # 2 T / E = 6: all of them
                hidden = torch.nn.functional.gelu(x_BTD[b, t] @ experts.expert_up[e], approximate="tanh")
                expected[b, t] += scores[b, t, e] * (hidden @ experts.expert_down[e])
    torch.testing.assert_close(experts(x_BTD), expected)
    few = Experts(width=4, experts=4)
    for p in few.parameters():
        torch.nn.init.normal_(p, generator=torch.Generator().manual_seed(1))
    chosen = few.router(x_BTD).softmax(-1).transpose(1, 2).topk(3).indices
    untouched = {(b, t) for b in range(3) for t in range(6)} - {
        (b, int(t)) for b in range(3) for t in chosen[b].flatten()
    }
    assert all(not few(x_BTD)[b, t].any() for b, t in untouched)


def test_vit_tells_places_apart():
    """Without positions a transformer could not see that two patches have changed places."""
    job = built("vit")
    images = job.batch(0).inputs
    moved = torch.cat([images[:, :, 8:], images[:, :, :8]], dim=2)
    assert not torch.allclose(job.model(images), job.model(moved))


def test_synthetic_images_of_a_class_share_a_pattern():
    batch = built("resnet", batch=400).batch(0)
    means = torch.stack([batch.inputs[batch.targets == k].mean(0) for k in range(4)])
    # noise of a uniform draw of width 3.5 has a deviation of 1.01, and a hundred of them are averaged
    assert float(means.std(0).mean()) > 0.5
    again = built("resnet", batch=400).batch(1)
    other = torch.stack([again.inputs[again.targets == k].mean(0) for k in range(4)])
    torch.testing.assert_close(means, other, atol=0.9, rtol=0)


@pytest.mark.parametrize("name", MORE)
def test_what_cannot_be_built_is_refused(name, tmp_path):
    one = workload(name, tmp_path)
    with pytest.raises(UsageError, match="did you mean 'smoke'"):
        one.build("smokey", 0, META, 2)
    with pytest.raises(UsageError, match="did you mean 'smoke'"):
        one.default_batch_size("smokey")
    with pytest.raises(UsageError, match="global batch size 0"):
        one.build("smoke", 0, META, 0)


def test_experts_and_masks_leave_other_samples_alone():
    """A sample gives the same whatever batch it is in: shares of any size compute what one process does."""
    for name in ("moe-gpt", "bert", "disruption", "seq2seq"):
        job = built(name)
        inputs = job.batch(0).inputs
        with torch.no_grad():
            torch.testing.assert_close(job.model(inputs)[2:3], job.model(inputs[2:3]), msg=name)


def test_a_translation_is_the_reversal_and_attention_sees_all_of_the_source():
    job = built("seq2seq")
    batch = job.batch(0)
    assert torch.equal(batch.targets, batch.inputs[:, :6].flip(1))
    assert torch.equal(batch.inputs[:, 7:], batch.targets[:, :-1])
    changed = batch.inputs.clone()
    changed[:, 0] = changed[:, 0] % 11 + 1
    with torch.no_grad():
        assert (job.model(changed) - job.model(batch.inputs)).abs().amax(-1).min() > 0
        later = batch.inputs.clone()
        later[:, 9] = later[:, 9] % 11 + 1  # a target's fourth token: no earlier one may depend on it
        torch.testing.assert_close(job.model(later)[:, :3], job.model(batch.inputs)[:, :3])


def test_dice_by_hand():
    from parbench.workloads.unet3d import dice

    truth = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    assert dice(truth, truth).item() == 1
    # overlap 1, sums 2 and 2; one is added to both sides of the fraction so that nothing in nothing is 1
    assert dice(torch.tensor([[0.0, 1.0, 1.0, 0.0]]), truth).item() == pytest.approx(3 / 5)
    assert dice(torch.zeros(1, 4), torch.zeros(1, 4)).item() == 1


def test_a_u_net_is_judged_by_dice_and_learns_to_segment():
    job = workload("unet3d", None).build("smoke", 0, CPU, 4)
    before = job.held_out(job.model)
    optimizer = job.optimizer(job.model.parameters())
    for step in range(150):
        batch = job.batch(step)
        optimizer.zero_grad()
        (job.loss(job.model(batch.inputs), batch) / 4).backward()
        optimizer.step()
    after = job.held_out(job.model)
    assert after["dice"] > max(0.5, before["dice"])
    assert after["loss"] < before["loss"]


def test_a_step_touches_few_rows_and_says_how_many():
    job = built("sparse-lm")
    batch = job.batch(0)
    read, scored = batch.inputs[..., 0].unique(), batch.inputs[..., 1:].unique()
    assert job.notes["touched_rows_fraction"] == (len(read) + len(scored)) / 1000
    job.loss(job.model(batch.inputs), batch).backward()
    grads = {name: job.model.get_parameter(name).grad for name in job.sparse}
    assert all(grad.is_sparse for grad in grads.values())
    assert torch.equal(grads["embedding.rows.weight"].coalesce().indices()[0], read)
    assert torch.equal(grads["head.rows.weight"].coalesce().indices()[0], scored)


def test_rhythms_have_the_rates_of_their_class():
    from parbench.workloads.ecg import rhythms

    batch = rhythms(64, 2500, torch.Generator().manual_seed(0))
    assert batch.inputs.shape == (64, 12, 2500)
    # In lead 0 the highest wave of a beat is 2.5 high, the noise 0.2: beats are counted where it passes half of that.
    smooth = torch.nn.functional.avg_pool1d(batch.inputs[:, :1], 9, stride=1).squeeze(1)
    beats = ((smooth[:, 1:] > 1.2) & (smooth[:, :-1] <= 1.2)).sum(1).float()
    counted = [float(beats[batch.targets == k].mean()) for k in range(4)]
    for beats_in_five_s, (low, high) in zip(counted, ((35, 50), (60, 90), (110, 150), (55, 95)), strict=True):
        assert low * 5 / 60 <= beats_in_five_s <= high * 5 / 60


def test_a_deep_linear_network_finds_the_matrix():
    from parbench.registry import Registry

    for arguments in ("", "(compressed=True)", "(problem=completion, compressed=True)"):
        job = Registry().resolve("workload", f"matrix-recovery{arguments}").build("small", 0, CPU, 100)
        optimizer = job.optimizer(job.model.parameters())
        assert job.held_out(job.model)["loss"] > 0.9
        for step in range(120):
            batch = job.batch(step)
            optimizer.zero_grad()
            (job.loss(job.model(batch.inputs), batch) / 100).backward()
            optimizer.step()
        # Completion is judged on all entries, of which seven tenths were never seen.
        assert job.held_out(job.model)["loss"] < (0.5 if "completion" in arguments else 0.05), arguments
