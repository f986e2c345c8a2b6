"""Whatever ends a launcher, its rank or its network, nothing of the network is left, and others' are untouched."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from amounts import amount
from parbench import RunSpec, Session
from parbench.errors import RankFailed
from parbench.network.build import Links
from parbench.network.keeper import OWNER_VARIABLE, refusal
from parbench.network.probe_link import probe_links
from parbench.network.reaper import is_orphan, reap
from parbench.network.spelling import parse_network

WHY_NOT = refusal()
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.usefixtures("no_orphans"),
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
LAUNCHER = Path(__file__).with_name("network_launcher.py")
GONE_WITHIN_S = 10


def begun(text="100mbit", ranks=2):
    return subprocess.Popen((sys.executable, LAUNCHER, text, str(ranks)), stdout=subprocess.PIPE, text=True)


def ended(launcher):
    launcher.kill()
    launcher.wait()
    launcher.stdout.close()


def gone(pid):
    deadline_s = time.monotonic() + GONE_WITHIN_S
    while time.monotonic() < deadline_s:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def keepers():
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PARBENCH_TESTS_ID") == os.environ["PARBENCH_TESTS_ID"]:
                found += [process.pid] * (OWNER_VARIABLE in process.environ())
        except psutil.Error:
            continue
    return found


def killed_at_random(dice):
    """Start a launcher and kill it at some moment: before, amid or after making its links."""
    launcher = begun()
    time.sleep(dice.uniform(0.0, 1.0))
    ended(launcher)


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_launcher_leaves_nothing(seed):
    killed_at_random(random.Random(seed))
    deadline_s = time.monotonic() + GONE_WITHIN_S
    while keepers() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert keepers() == []


def test_a_closed_network_is_gone():
    with Links.make(parse_network("100mbit"), 2) as links:
        namespace = Path(links.seats[0].namespace)
        assert namespace.exists()
    links.close()
    assert gone(links.keeper_pid)
    assert not namespace.exists()


def test_what_a_dead_launcher_left_is_removed_at_the_next_start_and_nothing_else():
    left, working = begun(), begun()
    stopped, running = int(left.stdout.readline()), int(working.stdout.readline())
    os.kill(stopped, signal.SIGSTOP)  # a keeper that is stopped does not see its launcher end
    ended(left)
    time.sleep(0.1)
    assert psutil.pid_exists(stopped)
    bystander = subprocess.Popen(("cat",), stdin=subprocess.PIPE, env={**os.environ, OWNER_VARIABLE: "somebody's"})
    try:
        with Links.make(parse_network("100mbit"), 2):
            assert gone(stopped)
            assert not gone_now(running)
            assert bystander.poll() is None
            assert reap() == []
    finally:
        ended(working)
        bystander.communicate()
    assert gone(running)


def gone_now(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_an_owner_is_known_by_number_and_start():
    me = psutil.Process()
    assert not is_orphan(f"pb-abcd-{me.pid} {me.create_time():.2f}")
    assert is_orphan(f"pb-abcd-{me.pid} {me.create_time() - 60:.2f}")  # the number was used again
    assert not is_orphan("")
    assert not is_orphan(f"pb-abcd-{me.pid}")


def test_two_networks_at_once_have_the_same_addresses_and_never_meet():
    first = Links.make(parse_network("100mbit"), 2, run="first")
    with first, Links.make(parse_network("50mbit"), 2, run="second") as second:
        assert [seat.address for seat in first.seats] == [seat.address for seat in second.seats]
        assert {seat.namespace for seat in first.seats}.isdisjoint(seat.namespace for seat in second.seats)
        first.close()
        found = probe_links(second, seconds=0.3)
    assert 25e6 < min(found.rate_bits_per_s) < 50e6


@pytest.mark.parametrize("victim", ["rank", "keeper"])
def test_a_session_that_loses_something_leaves_nothing(victim):
    lose(victim, random.Random(0))


def lose(victim, dice):
    with Session(2, network="100mbit", timeout_s=5) as session:
        keeper = session._links.keeper_pid
        variant = session.add(RunSpec(workload="digits", size="smoke", strategy="ddp"))
        if victim == "rank":
            time.sleep(dice.uniform(0, 0.05))
            os.kill(session.ranks.pids[dice.randrange(2)], signal.SIGKILL)
            with pytest.raises(RankFailed):
                variant.round(1000)
        if victim == "keeper":
            os.kill(keeper, signal.SIGKILL)
        session.kill()
    assert gone(keeper)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_hundred_launches_with_random_kills_leave_nothing():
    dice = random.Random(1)
    for _ in range(amount(40, in_ci=12)):
        lose(dice.choice(["rank", "keeper", "nothing"]), dice)
    for _ in range(amount(60, in_ci=18)):
        killed_at_random(dice)
    time.sleep(1)
    assert keepers() == []


@pytest.mark.nightly
def test_a_killed_run_leaves_no_keeper(start):
    running = start("digits", "--size", "smoke", "--set", "steps=1000000", "-s", "ddp", "--network", "100mbit")
    running.ranks(2)
    time.sleep(0.5)
    assert keepers()
    running.signal(signal.SIGKILL)
    running.process.communicate()
    deadline_s = time.monotonic() + GONE_WITHIN_S
    while keepers() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert keepers() == []
