"""A launcher for tests that are going to kill it: it makes links and puts a process into each namespace."""

import subprocess
import sys
import time

from parbench.network.build import Links
from parbench.network.spelling import parse_network

with Links.make(parse_network(sys.argv[1]), int(sys.argv[2])) as links:
    inside = [
        subprocess.Popen((*links.inside(k), "cat"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for k in range(len(links.plan.nodes))
    ]
    print(links.keeper_pid, flush=True)
    time.sleep(300)
