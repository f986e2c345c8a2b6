"""Print docs/workloads.md: every workload and size with its parameters, FLOPs, data and source (make workloads)."""

from __future__ import annotations

import torch

from parbench.api import Workload
from parbench.flops import training_flops
from parbench.registry import Registry

META = torch.device("meta")
HEAD = """# Workloads

Every workload and size, with the parameters that are trained and the FLOPs of one sample, forward and backward, a
multiply-add counted as two ([metrics.md](metrics.md)). `make workloads` prints this page from the models themselves;
tests hold published numbers and hand-made formulas against them. **P** marks a size whose number of parameters is a
published one. *Bundled* data comes with a package that is installed anyway, *generated* data is made from the seed;
nothing is downloaded.

Models are as published but for what would keep strategies from computing the same: batch norms are group norms, and
there is no dropout. Those with shardings are cut by `tensor`, all chains of blocks by `pipeline` and `fsdp`.

| workload | size | parameters | FLOPs per sample | sample | batch | data | cut by |
|---|---|--:|--:|---|--:|---|---|
"""


def rows(name: str, workload: Workload) -> list[str]:
    """Return the rows of one workload."""
    data = "bundled" if workload.data_hash() is not None else "generated"
    found = []
    for size in workload.sizes:
        batch = workload.default_batch_size(size)
        job = workload.build(size, 0, META, batch)
        samples = job.batch(0).samples
        count = sum(p.numel() for p in job.model.parameters() if p.requires_grad)
        flops = sum(training_flops(job).values()) / samples
        sample = f"{job.units_per_sample} tokens" if job.unit == "tokens" else "1 sample"
        cut = "tensor, " if job.shardings else ""
        cut += "replicas" if job.sparse else "pipeline, fsdp, replicas"
        mark = " **P**" if size in workload.parameters else ""
        found.append(f"| `{name}` | {size} | {count:,}{mark} | {flops:.3g} | {sample} | {batch} | {data} | {cut} |")
    return found


def document() -> str:
    """Return the page."""
    registry = Registry()
    table, sources = [], []
    for name in registry.names("workload"):
        cls = registry.load("workload", name)
        if name == "images":  # takes a path: its network depends on the file
            table.append(
                "| `images` | smoke, small | by the file | by the file | 1 sample | 8, 32 | path | all but tensor |"
            )
        elif name == "hf":
            table.append("| `hf` | smoke, small, full | - | - | 16 to 512 tokens | 8 | generated | fsdp, replicas |")
        else:
            table += rows(name, registry.resolve("workload", name))
        sources.append(f"- `{name}`: {cls.source}.")  # type: ignore[attr-defined]
    return HEAD + "\n".join(table) + "\n\n## Sources\n\n" + "\n".join(sources) + "\n"


if __name__ == "__main__":
    print(document(), end="")
