"""What is particular to the standard models: what they look at, and how their data is made."""

import pytest
import torch
from workload_cases import CPU, workload

from parbench.errors import UsageError


def built(name, batch=4, size="smoke", **arguments):
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


@pytest.mark.parametrize("name", ["alexnet", "bert", "googlenet", "mlp", "moe-gpt", "resnet", "vgg", "vit"])
def test_what_cannot_be_built_is_refused(name):
    with pytest.raises(UsageError, match="did you mean 'smoke'"):
        built(name, size="smokey")
    with pytest.raises(UsageError, match="did you mean 'smoke'"):
        workload(name, None).default_batch_size("smokey")
    with pytest.raises(UsageError, match="global batch size 0"):
        built(name, batch=0)
