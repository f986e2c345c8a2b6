"""lgc sends learned codes of the largest numbers, at places that one rank, each time another, has chosen for all.

step   0 ......... |dense_steps ................. |and train_steps later ...
sent   everything  |places and values; codes learn |places and codes
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor

from parbench.api import Carriage, Channel, Finish, Paper, Reduced, RoundsCompressor, Shape
from parbench_strategies.compression._draws import lasting
from parbench_strategies.compression._learned import Form, Learned, leader_places
from parbench_strategies.compression._ratio import checked_ratio, checked_warmup, kept
from parbench_strategies.compression._sparse import placed


@final
class Lgc(RoundsCompressor):
    """Averages codes ("ring"), or has a leader's code and each rank's largest values ("server"), in three phases.

    The paper leaves the first layer as it is and sends values of the last; here groups are alike.

    Args:
        ratio: share of the elements at whose places values are taken, rounded up.
        form: what is coded.
        dense_steps: of the first phase.
        train_steps: of the second, in which the autoencoder learns.
        innovation: with "server", the share of its values that each rank sends as they are.
    """

    name = "lgc"
    paper = Paper("Learned Gradient Compression (Abrahamyan et al., 2021)", "https://arxiv.org/abs/2103.08870")
    linear = False
    feedback = True
    per = "group"

    def __init__(
        self,
        ratio: float = 0.01,
        form: Form = "ring",
        dense_steps: int = 10,
        train_steps: int = 100,
        innovation: float = 0.1,
    ) -> None:
        self.ratio, self.form, self.innovation = checked_ratio(ratio), form, checked_ratio(innovation)
        self.dense_steps, self.train_steps = checked_warmup(dense_steps), checked_warmup(train_steps)
        self._learned: Learned | None = None

    def compresses(self, shape: Shape, element_bytes: int, world_size: int) -> bool:
        elements = math.prod(shape)
        least = (4 + 2 * world_size) * kept(elements, self.ratio) < elements * element_bytes
        return self.step >= self.dense_steps and least

    def exchange(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Finish:
        return partial(list, [self._exchange(grad, channel) for grad in grads])

    def sent(self, shapes: Sequence[Shape], element_bytes: int, channel: Carriage) -> None:
        return None  # phases differ

    def _exchange(self, grad_B: Tensor, channel: Channel) -> Reduced:
        flat_N = grad_B.reshape(-1)
        leads = self.step % channel.world_size == channel.rank
        places = leader_places(flat_N, kept(flat_N.numel(), self.ratio), leads, channel)
        own_K = flat_N[places].float()
        if self._learned is None:
            draws = lasting(self, "autoencoder", torch.device("cpu"))
            self._learned = Learned(self.form, draws, grad_B.device)
        if self.step < self.dense_steps + self.train_steps:
            average_K, sent_K = self._learned.learn(own_K, channel)
        else:
            average_K, sent_K = self._learned.exchange(own_K, leads, kept(own_K.numel(), self.innovation), channel)
        at = partial(placed, places_K=places, like_B=grad_B)
        return Reduced(average=at(average_K.to(grad_B.dtype)), contribution=lambda: at(sent_K.to(grad_B.dtype)))
