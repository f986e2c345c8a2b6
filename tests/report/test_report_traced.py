"""A report draws what ranks did, and sent each other, of runs that were traced."""

from parbench.report import data
from parbench.report.sources import gather


def test_a_traced_run_has_a_timeline_and_a_matrix(parbench):
    done = parbench("digits", "--size", "smoke", "-s", "single", "-s", "ddp", "-n", 2, "--steps", 5, "--trace")
    assert done.code == 0, done.err
    source = gather(done.results)
    (name,) = source.traces  # one rank alone has nobody to send to, nor to wait for
    assert name == "digits/smoke, ddp at 2 ranks"
    drawn = data.timeline_frame(source.traces[name])
    assert set(drawn["rank"]) == {0, 1}
    assert {"forward", "backward", "optimizer", "collective"} <= set(drawn["kind"])
    # Two ranks send each other all gradients once: 2(n-1)/n of them each.
    (record,) = [run.record for run in source.runs if run.record.spec.strategy == "ddp"]
    (to_1,), (to_0,) = source.sent[name][0][1:], source.sent[name][1][:1]
    assert to_0 == to_1 == record.traffic.sent["all_reduce"]
