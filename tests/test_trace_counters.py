"""Counters beside traced steps: what is read, when, and what a merged file shows of it."""

import itertools
import threading
import time

import msgspec
import pytest

from parbench.trace_counters import Counter, Counters, power_from
from parbench.tracing.counters import readings
from parbench.tracing.header import Own


def test_power_is_the_energy_between_two_values_of_a_counter_over_their_time(monkeypatch):
    moments, joules = iter([10.0, 10.1, 10.5, 11.0]), iter([100.0, 100.0, 101.0, None])
    monkeypatch.setattr(time, "perf_counter", lambda: next(moments))
    read = power_from(lambda: next(joules))
    # One joule between the first value, at 10.0, and the next other one, at 10.5.
    assert [read() for _ in range(4)] == [None, None, pytest.approx(2.0), None]


def test_counters_are_read_while_steps_are_taken_and_what_shows_nothing_is_left_out():
    readings, twice = itertools.count(1), threading.Event()

    def memory():
        if next(readings) == 2:
            twice.set()
        return 7.0

    counters = [Counter(name="memory", unit="bytes", read=memory), Counter(name="power", unit="W", read=lambda: None)]
    before_ns = time.perf_counter_ns()
    with Counters(counters) as beside:
        assert twice.wait(10)
    after_ns = time.perf_counter_ns()
    (told,) = beside.told
    assert (told["name"], told["unit"]) == ("memory", "bytes")
    assert len(told["values"]) >= 2
    assert all(before_ns <= at_ns <= after_ns and value == 7.0 for at_ns, value in told["values"])


def test_a_merged_file_shows_them_on_the_common_clock():
    own = msgspec.json.decode(
        b'{"schema": {"name": "parbench.trace", "major": 1}, "rank": 1, "world_size": 2, "backend": "gloo",'
        b' "clock": {"monotonic_ns": 0, "trace_us": 0}, "counters": [{"name": "power of cpu", "unit": "W",'
        b' "values": [[5000, 60.5], [7000, 61]]}]}',
        type=Own,
    )
    found = list(readings(own, 1, -4000))
    assert [(one["ts"], one["args"]) for one in found] == [(1.0, {"W": 60.5}), (3.0, {"W": 61.0})]
    assert {one["name"] for one in found} == {"power of cpu"}
    assert list(readings(None, 1, 0)) == []
