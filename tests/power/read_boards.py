"""Reads scripted boards through the real nvidia-ml-py, in a process whose libnvidia-ml.so.1 is the fake one.

Cases come as JSON on stdin (a script; a window in seconds), what each gives goes to stdout: readings or an error.
Time is the script's: it passes from one look at the boards to the next, however busy the machine is.
"""

import ctypes
import json
import os
import sys
import tempfile
from types import SimpleNamespace

import msgspec
import torch

from parbench import metering, sampler
from parbench.boardmeter import GpuLost
from parbench.nvml import Nvml
from parbench.powerplan import Place

LOOK_S = 0.01
seconds = 0.0
sampler.time = SimpleNamespace(perf_counter=lambda: seconds)


def at(now_s):
    global seconds
    seconds = now_s
    ctypes.CDLL("libnvidia-ml.so.1").fake_set(ctypes.c_double(now_s))


class Stepped:
    """A sampler that looks where time is set to, not where a thread happens to be."""

    until_s = 0.0

    def __init__(self, meters):
        self.real = sampler.Sampler(meters)

    def start(self):
        for k in range(round(self.until_s / LOOK_S)):
            at(k * LOOK_S)
            self.real.look()

    def stop(self, beyond_s=0.0):
        return self.real._samples


metering.Sampler = Stepped


def read(case):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as script:
        script.write(case["script"])
        script.flush()
        os.environ["FAKE_NVML"] = script.name
        at(0.0)
        found = Nvml.open()
        if isinstance(found, str):
            return {"reason": found}
    start_s, end_s = case["window"]
    Stepped.until_s = end_s + 0.3
    meters = metering.Metering(torch.device("cpu"))
    meters._nvml = found
    meters.start([Place(host="here", board=one.bus_id, part=bool(one.parts)) for one in found.boards])
    try:
        return {"readings": msgspec.to_builtins(meters.stop(start_s, end_s, 10))}
    except GpuLost as error:
        return {"lost": str(error)}


print(json.dumps([read(case) for case in json.load(sys.stdin)]))
