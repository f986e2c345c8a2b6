"""Suitability: what a job needs of a strategy or of a device beyond what the strategy itself looks at."""

from __future__ import annotations

import functools

import torch
from torch import nn

from parbench.api import Job, Strategy


def unsuitable(strategy: Strategy, job: Job, dtype: torch.dtype, device: torch.device) -> str | None:
    """Return a sentence saying why `job` cannot be trained so, or None.

    Args:
        strategy: what would spread it.
        job: shapes only will do.
        dtype: arithmetic of forward and backward; all but float32 is autocast's.
        device: where ranks compute.
    """
    if job.sparse and not strategy.takes_sparse:
        return (
            f"the gradient of {job.sparse[0]} is sparse, which this strategy cannot exchange; use replicated, "
            "single, or tell the workload to make dense ones (sparse=False)"
        )
    if dtype is not torch.float32 and any(isinstance(module, nn.LSTM) for module in job.model.modules()):
        return _lstm_problem(dtype, device)
    return None


@functools.cache
def _lstm_problem(dtype: torch.dtype, device: torch.device) -> str | None:
    """Try an LSTM under autocast: whether a CPU computes it in half precision depends on its instructions."""
    layer = nn.LSTM(2, 2, device=device)
    try:
        with torch.autocast(device.type, dtype=dtype):
            layer(torch.zeros(1, 1, 2, device=device))
    except RuntimeError as error:
        said = str(error).partition(".")[0][:120]
        name = str(dtype).removeprefix("torch.")
        other = "" if dtype is torch.bfloat16 else "--precision bf16, "
        return (
            f"an LSTM under autocast to {name} cannot run on this {device.type} ({said}); use {other}cell=gru or "
            "cell=lstmcell, or amp_rnn(weights=fp16)"
        )
    return None
