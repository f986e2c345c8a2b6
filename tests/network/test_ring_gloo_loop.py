"""gloo's loop thread can be put into the idle class, and only it."""

import os
import subprocess
import sys
from pathlib import Path

from parbench.network.gloo_loop import tame_gloo_loop

PROGRAM = """
import os, torch, torch.distributed as dist
from pathlib import Path
from parbench.network.gloo_loop import tame_gloo_loop
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
tamed = tame_gloo_loop()
names = {t: (Path("/proc/self/task") / str(t) / "comm").read_text().strip() for t in tamed.threads}
others = {int(t.name) for t in Path("/proc/self/task").iterdir()} - set(names)
policies = [{os.sched_getscheduler(t) == os.SCHED_IDLE for t in group} for group in (names, others)]
print(sorted(set(names.values())), policies, repr(tamed.reason))
tensor = torch.ones(3); dist.all_reduce(tensor); print(tensor.tolist())
"""


def test_only_the_loop_threads_of_gloo_become_idle_class():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["['gloo_tcp_loop'] [{True}, {False}] ''", "[1.0, 1.0, 1.0]"], done.stderr


def test_a_process_without_gloo_is_told_so():
    assert Path("/proc/self/task").is_dir()
    tamed = tame_gloo_loop()
    assert tamed.threads == ()
    assert "make a gloo group first" in tamed.reason
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
