"""What traces say of links that are shaped: exposed communication, and the bytes that the kernel counts. Nightly."""

import math
import statistics

import pytest

from parbench import RunSpec, Session
from parbench.network.keeper import refusal
from parbench.traced import take
from plugin_sources import strategy

WHY_NOT = refusal()
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.usefixtures("no_orphans"),
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]

LINK = "100mbit"


@pytest.fixture(scope="module")
def session(mark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    # The same computation without communication: every rank keeps its own gradients.
    alone = strategy(folder, "keeps_to_itself", exchange="pass", agrees="differently")
    with Session(world_size=2, timeout_s=60, network=LINK, plugins=[alone]) as session:
        yield session


def job(name, **changes):
    return RunSpec(workload="gpt", strategy=name, network=LINK, global_batch_size=2, **changes)


def test_exposed_communication_is_the_difference_to_a_run_without_communication(session, tmp_path):
    variants = {name: session.add(job(name)) for name in ("no_overlap", "keeps_to_itself")}
    for variant in variants.values():
        variant.round(2)
    times = {name: [] for name in variants}
    for k in range(3):  # by turns: what disturbs this machine meets both
        for name, variant in variants.items():
            times[name].append(take(variant, 3, tmp_path / name / str(k)).found)
    for variant in variants.values():
        variant.close()
    steps = {
        name: statistics.median(max(r.step_s for r in one.ranks) for one in found) for name, found in times.items()
    }
    exposed = statistics.median(
        math.fsum(s for part, s in r.parts.items() if part.startswith(("exposed_comm/", "wait")))
        for one in times["no_overlap"]
        for r in one.ranks
    )
    difference = steps["no_overlap"] - steps["keeps_to_itself"]
    print(f"\nexposed {exposed:.4f} s, difference {difference:.4f} s of {steps['no_overlap']:.4f} s")
    assert difference > 0.7 * steps["no_overlap"], "the job is not bound by its link"
    assert exposed == pytest.approx(difference, rel=0.1)


@pytest.mark.parametrize(
    "name", ["ddp", "fsdp", "tensor", "pipeline(microbatches=2)", "replicated(collective=ring_socket)"]
)
def test_wire_bytes_of_the_trace_are_what_the_kernel_counts(session, tmp_path, name):
    variant = session.add(job(name, probes=("wire",)))
    variant.round(2)
    counted = [{one.name: statistics.median(one.values) for one in done.series} for done in variant.round(3).ranks]
    found = take(variant, 3, tmp_path)
    variant.close()
    columns = found.traffic
    for rank, kernel in enumerate(counted):
        sent = (
            sum(size for owner, size in zip(columns["rank"], columns["wire_bytes"], strict=True) if owner == rank)
            / found.found.steps
        )
        measured, received = kernel["wire_bytes_per_step"], kernel["wire_bytes_received_per_step"]
        # A frame has 66 bytes of headers at least every 1448 bytes of payload, and what comes in is acknowledged.
        headers = 66 * (measured + received) / 1448
        print(f"\n{name} rank {rank}: {sent:.0f} by the trace, {measured:.0f} by the interface")
        assert 0.97 * sent <= measured <= 1.03 * sent + headers
