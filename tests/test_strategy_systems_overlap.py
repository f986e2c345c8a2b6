"""Overlap is real: with blocks that sleep, on shaped links, schedules that hide more are faster (by `make quiet`)."""

import os
from pathlib import Path
from statistics import median

import pytest

from parbench import RunSpec, Session
from slept import resnet, vgg

PLUGINS = [Path(__file__).with_name("slept.py"), Path(__file__).parent / "benchmarks" / "linkbound.py"]
ALONE = "linkbound"  # exchanges nothing
PIPE = "pipe_sgd(collective=ring_socket)"
BUCKETS = "replicated(fusion=buckets(mb={mb}), collective=ring_socket)"


def test_profiles_have_the_published_numbers_of_weights():
    # VGG-16 has 138,357,544 parameters, 13,416 of them biases; ResNet-50's convolutions and last layer 25,502,912
    # (25,557,032 with 53,120 of norms and 1,000 biases).
    assert sum(n for n, _, _ in vgg(1, 1, 1)) == 138_357_544 - 13_416
    assert sum(n for n, _, _ in resnet(1, 1, 1)) == 25_557_032 - 53_120 - 1_000


def measured(workload, network, strategies, rounds=3, steps=8):
    """Return strategy -> the median step of each of three launches, in seconds; rounds take turns.

    Steps are those inside a round, on the slowest rank, without the first: what a round's end completes is in none.
    """
    found = {strategy: [] for strategy in strategies}
    for launch in range(3):
        spec = {"workload": workload, "size": "smoke", "world_size": 4, "network": network}
        with Session(world_size=4, plugins=PLUGINS, network=network) as session:
            variants = {s: session.add(RunSpec(strategy=s, **spec)) for s in strategies}
            for variant in variants.values():
                variant.round(4)  # plans settle
            times = {s: [] for s in strategies}
            for turn in range(rounds):
                for strategy in sorted(strategies, key=lambda s: hash((launch, turn, s))):
                    ranks = [one.seconds for one in variants[strategy].round(steps).ranks]
                    times[strategy] += [max(step) for step in zip(*ranks, strict=True)][1:]
        for strategy in strategies:
            found[strategy].append(median(times[strategy]))
        print(f"\nload {os.getloadavg()[0]:.1f}")
        for strategy in strategies:
            print(f"  {strategy}: {found[strategy][-1] * 1e3:.1f} ms")
    return found


def faster_in_every_launch(found, one, other):
    assert all(a < b for a, b in zip(found[one], found[other], strict=True)), {s: found[s] for s in (one, other)}


@pytest.mark.quiet
@pytest.mark.timeout(600)
def test_dear_and_p3_hide_behind_the_next_forward_what_buckets_cannot():
    """VGG-like: 138 M / 64 weights, 100 + 200 ms, 30 Gbit/s / 128, no added start-up cost."""
    workload = "slept(profile=vgg, scale=64, forward_ms=100, backward_ms=200)"
    buckets = BUCKETS.format(mb=25 / 64)
    dear = f"dear(mb={25 / 64}, collective=ring_socket)"
    p3 = f"p3(slice_elements={8 * 2**20 // 4 // 64}, collective=ring_socket)"
    found = measured(workload, "rate=234.4mbit burst=17000 gso=16384", [buckets, dear, p3, PIPE])
    faster_in_every_launch(found, dear, buckets)
    faster_in_every_launch(found, p3, buckets)


@pytest.mark.quiet
@pytest.mark.timeout(600)
def test_mgwfbp_merges_more_wisely_than_buckets_and_pipe_sgd_takes_the_longer_of_both():
    """ResNet-50-like: 25.6 M / 32 weights, 60 + 120 ms, 10 Gbit/s / 32, 1 ms start-up cost."""
    workload = "slept(profile=resnet, scale=32, forward_ms=60, backward_ms=120)"
    network = "rate=312.5mbit burst=17000 gso=16384 alpha=1ms"
    buckets = BUCKETS.format(mb=25 / 32)
    rule = "replicated(fusion=mgwfbp, collective=ring_socket)"
    found = measured(workload, network, [ALONE, buckets, rule, PIPE, "dear(mb=0.16, collective=ring_socket)"])
    faster_in_every_launch(found, rule, buckets)
    # Exchanging takes less than computing here: 4.8 MB at 39 MB/s, and its start-up.
    assert all(pipe_s < 1.05 * alone_s for pipe_s, alone_s in zip(found[PIPE], found[ALONE], strict=True)), found
