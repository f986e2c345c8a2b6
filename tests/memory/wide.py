"""wide: four layers of 1024 x 1024, so that states outweigh activations; a workload for tests of memory."""

import torch
from torch import nn

from parbench.api import Batch, Job, Workload

WIDTH, LAYERS = 1024, 4


class Wide(Workload):
    """A perceptron of 4.2 million parameters, with Adam."""

    unit = "samples"
    sizes = {"smoke": {"width": WIDTH}}  # noqa: RUF012
    source = "made from the seed"

    def default_batch_size(self, size):
        return 8

    def build(self, size, seed, device, global_batch_size):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers = [nn.Linear(WIDTH, WIDTH, device=device) for _ in range(LAYERS)]

        def batch(step):
            inputs = torch.randn(global_batch_size, WIDTH, generator=torch.Generator().manual_seed(step))
            return Batch(inputs=inputs, targets=inputs)

        return Job(
            model=nn.Sequential(*layers),
            loss=lambda outputs, share: ((outputs - share.targets) ** 2).sum(),
            optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-4),
            batch=batch,
            unit="samples",
            units_per_sample=1,
            blocks=[str(k) for k in range(LAYERS)],
            shardings={f"{k}.*": "column" for k in (0, 2)} | {f"{k}.weight": "row" for k in (1, 3)},
        )
