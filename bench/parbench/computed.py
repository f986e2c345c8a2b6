"""Computed is what a step of a whole model costs in FLOPs, with and without recomputation, or why that is not known."""

from __future__ import annotations

import msgspec
import torch

from parbench.api import Workload
from parbench.builder import Builder
from parbench.flops import training_flops
from parbench.observed import Flops
from parbench.spec import RunSpec


def step_flops(builder: Builder, workload: Workload, spec: RunSpec) -> Flops:
    """Count the FLOPs of one step; whatever a model does on the meta device, this gives a count or a reason."""
    try:
        job = builder.shapes(workload, msgspec.structs.replace(spec, recompute="none"))
        model = training_flops(job)
        again = model if spec.recompute == "none" else training_flops(builder.shapes(workload, spec))
    except Exception as error:  # noqa: BLE001 - a plug-in's model may raise anything where it has shapes only
        told = " ".join(str(error).split())[:300]
        return Flops(reason=f"the model could not be counted on the meta device: {type(error).__name__}: {told}")
    return Flops(samples=job.batch(0).samples, model=model, hardware=again, tf32=_rounded())


def _rounded() -> tuple[str, ...]:
    """Return the classes of operators in which a GPU may round fp32 to TF32."""
    if not torch.cuda.is_available():
        return ()
    products = ("matrix product",) if torch.get_float32_matmul_precision() != "highest" else ()
    return (*products, *(("convolution", "recurrence") if torch.backends.cudnn.allow_tf32 else ()))
