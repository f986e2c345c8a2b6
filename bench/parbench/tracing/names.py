"""Names of events tell what they are: torch's, those of gloo and NCCL in several versions, and parbench's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import get_args

from parbench.tracing.spans import Kind

PREFIX = "parbench:"
OWN_COLLECTIVE = "parbench:collective:"
_KINDS: Mapping[str, Kind] = MappingProxyType({kind: kind for kind in get_args(Kind)})

# In this order: the first that a name begins with, underscores and case aside.
_OPS = (
    ("monitoredbarrier", "barrier"),
    ("barrier", "barrier"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("sendrecv", "send_recv"),
    ("send", "send"),
    ("recv", "recv"),
)
# From old to new: ncclAllReduceRingLLKernel_sum_f32, ncclKernel_AllReduce_RING_LL_Sum_float,
# ncclDevKernel_AllReduce_Sum_f32_RING_LL(...), ncclSymkDevKernel_AllGather_ST(...)
_NCCL = re.compile(r"^(?:void )?nccl(?:Dev|Sym|Kernel|k)*_?([A-Za-z]+)")
_NATURAL: tuple[tuple[str, Kind], ...] = (
    ("ProfilerStep#", "step"),
    ("Optimizer.step#", "optimizer"),
    ("Optimizer.zero_grad#", "optimizer"),
    ("enumerate(DataLoader)", "data"),
    ("DistributedDataParallel.forward", "forward"),
    ("autograd::engine::evaluate_function", "backward"),
    ("_c10d_functional::wait_tensor", "wait"),
)


# A trace repeats a few hundred names a million times.
@lru_cache(maxsize=4096)
def op_of(name: str) -> str | None:
    """Return the collective that a name of torch, gloo or NCCL means, such as `c10d::_allgather_base_`, or None."""
    plain = re.split(r"::|:", name)[-1].replace("_", "").lower()
    return next((op for start, op in _OPS if plain.startswith(start)), None)


@lru_cache(maxsize=4096)
def is_call(name: str) -> bool:
    """Whether an operator of this name issues communication."""
    return name.startswith(("c10d::", "_c10d_functional::")) and op_of(name) is not None


def nccl_op(kernel: str) -> str | None:
    """Return the collective that a kernel of NCCL carries out, or None; a kernel that is none of NCCL's is None too."""
    found = _NCCL.match(kernel)
    return op_of(found[1]) if found else None


def is_nccl(kernel: str) -> bool:
    """Whether a kernel is one of NCCL's, known or not."""
    return kernel.startswith(("nccl", "void nccl"))


@lru_cache(maxsize=4096)
def kind_of(name: str, category: str) -> Kind:
    """Return what an event on the CPU means for the step time."""
    if name.startswith(PREFIX):
        return _KINDS.get(name.removeprefix(PREFIX).partition(":")[0], "other")
    if name.startswith(("gloo:", "nccl:")):
        return "collective"
    for start, kind in _NATURAL:
        if name.startswith(start):
            return kind
    return "operator" if category == "cpu_op" else "other"
