"""Whatever a file holds: a trace whose parts sum, or one sentence; no traceback, and no merged file that breaks."""

import gzip
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parbench.errors import UnreadableError
from parbench.tracing import chrome, clocks
from parbench.tracing.merged import write_merged
from parbench.tracing.summary import summary

NAMES = (
    *("aten::mm", "c10d::allreduce_", "gloo:all_reduce", "gloo:send", "c10d::send", "record_param_comms"),
    *(
        "ncclDevKernel_AllReduce",
        "ProfilerStep#1",
        "Optimizer.step#SGD.step",
        "parbench:wait",
        "parbench:step",
        "",
        "\n\"'",
    ),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("Input Dims", "Input type", "Sequence number", "External id", "Collective name", "Process Group Ranks", "dtype")
times = st.integers(-100, 10_000) | st.floats(0, 1e4)
events = st.fixed_dictionaries(
    {
        "ph": st.sampled_from("XXXXiCsfM?"),
        "cat": st.sampled_from(["cpu_op", "user_annotation", "kernel", "cuda_runtime", "gpu_memcpy", ""]),
        "name": st.sampled_from(NAMES),
        "ts": times,
        "dur": times,
        "tid": st.integers(1, 3) | st.text(max_size=3),
    },
    optional={
        "args": st.dictionaries(st.sampled_from(KEYS), anything, max_size=4) | anything,
        "id": anything,
        "pid": anything,
        "s": anything,
    },
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(events, max_size=12), st.dictionaries(st.sampled_from(["rank", "world_size", "pg_config"]), anything))
def test_any_events_are_summed_up_and_merged(tmp_path_factory, listed, info):
    path = tmp_path_factory.mktemp("any") / "rank0.json"
    path.write_text(json.dumps({"traceEvents": listed, "distributedInfo": info}))
    found = clocks.aligned([chrome.read(path)])
    for rank in summary(found).ranks:
        if rank.breakdown is not None:
            assert abs(sum(rank.breakdown.values()) - rank.step_s) <= 1e-9 + 1e-9 * rank.step_s
        assert rank.overlap is None or 0 <= rank.overlap <= 1
        assert rank.recognised <= rank.candidates
    write_merged({found.traces[0].rank: path}, found, packed=False)


WHOLE = json.dumps(
    {
        "distributedInfo": {"rank": 0, "world_size": 2, "backend": "gloo"},
        "traceEvents": [
            {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 100},
            {"ph": "X", "cat": "cpu_op", "name": "c10d::allreduce_", "pid": 1, "tid": 1, "ts": 10, "dur": 2},
            {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": 2, "ts": 13, "dur": 9},
        ],
    }
).encode()


@settings(max_examples=150, deadline=None)
@given(st.booleans(), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_bytes_that_have_changed_make_another_trace_or_one_sentence(tmp_path_factory, packed, changes):
    data = bytearray(gzip.compress(WHOLE, mtime=0) if packed else WHOLE)
    for place, value in changes:
        data[place % len(data)] = value
    path = tmp_path_factory.mktemp("changed") / "rank0.json"
    path.write_bytes(bytes(data))
    try:
        found = chrome.read(path)
    except UnreadableError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
        return
    summary(clocks.aligned([found]))
