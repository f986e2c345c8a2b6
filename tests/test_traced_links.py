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


def step_s(found):
    return max(one.step_s for one in found.ranks)


def job(name, **changes):
    return RunSpec(workload="gpt", strategy=name, network=LINK, global_batch_size=2, **changes)


@pytest.mark.quiet  # a tenth of half a second: neighbours on two cores take more
def test_exposed_communication_is_the_difference_to_a_run_without_communication(session, tmp_path):
    variants = {name: session.add(job(name)) for name in ("no_overlap", "keeps_to_itself")}
    for variant in variants.values():
        variant.round(2)
    found = {name: [] for name in variants}
    for k in range(4):  # by turns: what disturbs this machine meets both
        for name, variant in variants.items():
            found[name].append(take(variant, 3, tmp_path / name / str(k)).found)
    for variant in variants.values():
        variant.close()
    # Of each the run that was disturbed least.
    least = {name: min(runs, key=step_s) for name, runs in found.items()}
    whole_s, alone_s = step_s(least["no_overlap"]), step_s(least["keeps_to_itself"])
    exposed = statistics.mean(
        math.fsum(s for part, s in one.parts.items() if part.startswith(("exposed_comm/", "wait")))
        for one in least["no_overlap"].ranks
    )
    difference = whole_s - alone_s
    print(f"\nexposed {exposed:.4f} s, difference {difference:.4f} s of {whole_s:.4f} s")
    assert difference > 0.7 * whole_s, "the job is not bound by its link"
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
