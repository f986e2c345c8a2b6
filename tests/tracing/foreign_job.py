"""A user's own job: ranks that train under torch.profiler, each with a trace of its own; it knows no parbench.

python foreign_job.py KIND,KIND,... RANK WORLD_SIZE FOLDER
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = 3


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 520))


def ddp():
    # The first bucket closes at 1 MiB, whatever the cap: the last layer (266 760 parameters); the rest is a second one.
    wrapped = nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=1)
    return trained(wrapped, wrapped.parameters())


def fsdp():
    from torch.distributed.fsdp import fully_shard

    whole = model()
    for layer in (whole[0], whole[2], whole):
        fully_shard(layer, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return trained(whole, whole.parameters())


def tensor():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    whole = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return trained(whole, whole.parameters())


def pipeline():
    whole, rank = model(), dist.get_rank()
    stage = whole[:1] if rank == 0 else whole[1:]
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        for _ in range(2):  # micro-batches
            if rank == 0:
                hidden = stage(torch.randn(16, 64))
                dist.send(hidden.detach(), 1)
                grad = torch.empty_like(hidden)
                dist.recv(grad, 1)
                hidden.backward(grad)
            else:
                received = torch.empty(16, 512)
                dist.recv(received, 0)
                received.requires_grad_()
                stage(received).sum().backward()
                dist.send(received.grad, 0)
        optimizer.step()

    return step


def trained(net, parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.01)

    def step():
        optimizer.zero_grad()
        net(torch.randn(32, 64)).sum().backward()
        optimizer.step()

    return step


def traced(step, path):
    for _ in range(3):
        step()
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
        record_shapes=True,
    ) as profiler:
        for _ in range(1 + STEPS):
            step()
            profiler.step()


def main(kinds, rank, world_size, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=int(rank), world_size=int(world_size))
    for kind in kinds.split(","):
        step = {"ddp": ddp, "fsdp": fsdp, "tensor": tensor, "pipeline": pipeline}[kind]()
        Path(folder, kind).mkdir(exist_ok=True)
        traced(step, Path(folder, kind, f"rank{rank}.json.gz"))
        del step
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
