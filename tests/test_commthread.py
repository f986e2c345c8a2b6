"""A communication thread issues jobs in order, tells their errors, is watched as its owner is, and always ends."""

import gc
import threading
import time
import weakref

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from parbench.commthread import CommThread
from parbench.counting import ByteCounter


@pytest.fixture(scope="module", autouse=True)
def group():
    """A group of four ranks of which only rank 0 exists: operators pass, nothing moves."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    dist.destroy_process_group()


@pytest.fixture
def thread():
    before = threading.active_count()
    made = CommThread(torch.device("cpu"))
    yield made
    made.close()
    assert threading.active_count() == before


def fail():
    raise ValueError("planned by the test")


def test_jobs_run_in_the_order_they_are_handed_over_and_elsewhere(thread):
    seen = []
    tickets = [thread.submit(lambda k=k: seen.append((k, threading.current_thread().name))) for k in range(100)]
    tickets[-1].wait()
    assert seen == [(k, "parbench-comm") for k in range(100)]


def test_handing_over_does_not_wait(thread):
    go = threading.Event()
    ticket = thread.submit(lambda: go.wait(10))
    assert not go.is_set()
    go.set()
    ticket.wait()


def test_an_error_is_raised_where_it_is_waited_for_and_no_job_follows_it(thread):
    ran = []
    first, bad, after = (thread.submit(job) for job in (lambda: ran.append(1), fail, lambda: ran.append(2)))
    first.wait()
    for ticket in (bad, after, bad, thread.submit(lambda: ran.append(3))):
        with pytest.raises(ValueError, match="planned by the test") as caught:
            ticket.wait()
        assert any(entry.name == "fail" for entry in caught.traceback)
    assert ran == [1]


def test_close_ends_it_after_an_error(thread):
    thread.submit(fail)
    thread.close()
    thread.close()
    with pytest.raises(RuntimeError, match="make a new one"):
        thread.submit(fail)


def test_close_waits_for_the_job_that_runs_and_drops_the_others(thread):
    started, ran = threading.Event(), []

    def slow():
        started.set()
        time.sleep(0.2)
        ran.append("slow")

    running, dropped = thread.submit(slow), thread.submit(lambda: ran.append("dropped"))
    started.wait(10)
    thread.close()
    assert ran == ["slow"]
    running.wait()
    with pytest.raises(RuntimeError, match="closed before this job"):
        dropped.wait()


def test_a_counter_of_the_thread_that_hands_over_counts_what_is_issued(thread):
    def issue():
        dist.all_reduce(torch.zeros(8))

    thread.submit(issue).wait()
    with ByteCounter() as outer, ByteCounter() as inner:
        ticket = thread.submit(issue)
        ticket.wait()
    thread.submit(issue).wait()
    for counter in (outer, inner):
        assert [(one.op, one.logical_bytes) for one in counter.seen] == [("all_reduce", 48)]


def test_a_counter_goes_with_the_job_not_with_the_thread(thread):
    go = threading.Event()

    def issue():
        go.wait(10)
        dist.all_reduce(torch.zeros(8))

    with ByteCounter() as counter:
        watched = thread.submit(issue)
    unwatched = thread.submit(issue)
    go.set()
    watched.wait(), unwatched.wait()
    assert len(counter.seen) == 1


def test_jobs_record_no_gradients(thread):
    weight, seen = torch.ones(2, requires_grad=True), []
    thread.submit(lambda: seen.append((weight * 2).requires_grad)).wait()
    assert seen == [False]


def test_it_sleeps_between_jobs(thread):
    thread.submit(lambda: None).wait()
    before_s = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before_s < 0.1


def test_it_keeps_no_job_alive(thread):
    class Owner:
        def job(self):
            return None

    owner = Owner()
    thread.submit(owner.job).wait()
    thread.submit(lambda: None).wait()
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_on_a_cpu_marks_are_nothing(thread):
    assert thread.mark() is None
    thread.submit(lambda: thread.follow(thread.mark())).wait()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_jobs_come_after_what_was_computed_and_before_what_follows():
    device = torch.device("cuda", 0)
    thread = CommThread(device)
    try:
        x = torch.zeros(2**24, device=device)

        def slow_double():
            torch.cuda._sleep(2_000_000)
            x.mul_(2)

        for step in range(1, 20):
            torch.cuda._sleep(2_000_000)
            x.add_(1)  # the job must see this ...
            thread.submit(slow_double).wait()
            x.div_(2)  # ... and this must see the job
            assert float(x[-1]) == step
    finally:
        thread.close()
