"""What the forkserver imports once, so that a fresh rank is ready in hundredths of a second.

Imports only: nothing here may touch CUDA or run an OpenMP region; either would break the processes forked later.
"""

from __future__ import annotations

import importlib

_NEEDED = (
    "numpy",
    "torch",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.distributed.pipelining",
    "torch.distributed.optim",
    "torch._dynamo",
    "parbench.worker",
    "parbench.registry",
)

for _name in _NEEDED:
    importlib.import_module(_name)
