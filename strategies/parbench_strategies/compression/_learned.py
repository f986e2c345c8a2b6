"""Learned codes are exchanged in two forms: averaged over all ranks, or a leader's with each rank's own largest values.

ring     code of each ──mean──> code ──decode──> average
server   code of the leader, values of each ──> what the code says, and the values where there are some, of each ──mean
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import Tensor

from parbench.api import Channel
from parbench_strategies.compression._autoencoder import Autoencoder
from parbench_strategies.compression._sparse import dense, taken

Form = Literal["ring", "server"]


@final
class Learned:
    """Codes of rows of K values, which ranks exchange; every rank learns the same.

    Args:
        form: of the exchange.
        draws: gives the autoencoder's first weights.
        device: where values are.
    """

    def __init__(self, form: Form, draws: torch.Generator, device: torch.device) -> None:
        self._form = form
        self.coder = Autoencoder(draws, device)

    def learn(self, own_K: Tensor, channel: Channel) -> tuple[Tensor, Tensor]:
        """Exchange values, learn from those of all ranks, and return their mean and this rank's."""
        ((*by_rank,),) = channel.gather([[own_K]])
        values_RK = torch.stack([one for (one,) in by_rank])
        self.coder.learn(values_RK / _positive(values_RK.abs().max()))
        return values_RK.mean(0), own_K

    def exchange(self, own_K: Tensor, leads: bool, values: int, channel: Channel) -> tuple[Tensor, Tensor]:
        """Exchange codes; return the average of what is found again of the ranks' values, and what is of this one's.

        Args:
            own_K: this rank's values.
            leads: whether the code is this rank's, where only one is sent.
            values: how many each rank sends as they are, then.
            channel: the ranks.
        """
        with torch.no_grad():
            if self._form == "ring":
                return self._ring(own_K, channel)
            return self._server(own_K, leads, values, channel)

    def _ring(self, own_K: Tensor, channel: Channel) -> tuple[Tensor, Tensor]:
        (size,) = channel.mean([own_K.abs().max().view(1)])
        code_C = self.coder.code((own_K / _positive(size)).unsqueeze(0))
        (mean_C,) = channel.mean([code_C])
        average, own = (self.coder.values(code, own_K.numel()).squeeze(0) * size for code in (mean_C, code_C))
        return average, own

    def _server(self, own_K: Tensor, leads: bool, values: int, channel: Channel) -> tuple[Tensor, Tensor]:
        size = own_K.abs().max().view(1)
        code_C = self.coder.code((own_K / _positive(size)).unsqueeze(0)).squeeze(0)
        message = torch.cat([size, code_C])
        (said,) = channel.sum([message if leads else torch.zeros_like(message)])
        common_K = self.coder.values(said[1:].unsqueeze(0), own_K.numel()).squeeze(0) * said[0]
        (by_rank,) = channel.gather([taken(own_K, own_K.abs().topk(values).indices)])
        found = [torch.where(_told(one, own_K), dense(one, own_K), common_K) for one in by_rank]
        return torch.stack(found).mean(0), found[channel.rank]


def leader_places(flat_N: Tensor, count: int, leads: bool, channel: Channel) -> Tensor:
    """Return the places of the leader's largest numbers, on every rank.

    They are in the order of the leader's values: a smooth row has a better code than a rough one.
    """
    largest = flat_N.abs().topk(count).indices
    ordered = largest[flat_N[largest].argsort()].to(torch.int32)
    (places,) = channel.sum([ordered if leads else torch.zeros_like(ordered)])
    return places.long()


def _positive(size: Tensor) -> Tensor:
    return size.clamp(min=torch.finfo(torch.float32).tiny)


def _told(message: Sequence[Tensor], like_K: Tensor) -> Tensor:
    """Return where a message has values."""
    values, places = message
    return dense([torch.ones_like(values), places], like_K) > 0
