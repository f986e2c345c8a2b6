"""A compressor with one fault of choice: it keeps the numbers above the median magnitude."""

import math

import torch

from parbench.api import GatherCompressor, Paper


class PlantedCompressor(GatherCompressor):
    """Sends the larger half of each gradient as it is."""

    name = "planted_compressor"
    paper = Paper("none", "https://example.org")
    repeatable = True

    def __init__(self, fault: str = "none", claims: str = "contraction") -> None:
        self.fault = fault
        self.claims = claims
        self.calls = 0

    def encode(self, grad, key):
        if self.fault == "in place":
            grad.mul_(0.5)
        flat = grad.reshape(-1)
        places = flat.abs().topk(self.kept(flat.numel()), sorted=False).indices
        if self.fault == "state by place":
            self.calls += 1
            places = (places + self.calls) % flat.numel()
        if self.fault == "global draws":
            flat = flat + 0 * torch.rand(())
        return [flat[places], places.int()]

    def decode(self, message, grad, key):
        values, places = message
        dense = torch.zeros(grad.numel(), dtype=grad.dtype).index_copy(0, places.long(), values).view(grad.shape)
        factor = {"doubled": 2.5, "shrunk": 0.9}.get(self.fault, 1.0)
        offset = 0.01 if self.fault == "offset" else 0.0
        dense = dense * factor + offset
        return dense.double() if self.fault == "wrong type" else dense

    def average(self, messages, grad, key):
        if self.fault == "own average":
            return self.decode(messages[self.rank], grad, key)
        return super().average(messages, grad, key) * (2 if self.fault == "doubled average" else 1)

    def kept(self, elements):
        return math.ceil(elements / (1 if self.fault == "never shorter" else 16))

    def length(self, shape, element_bytes):
        return self.kept(math.prod(shape)) * (element_bytes + 4)

    def _stays(self, shape, element_bytes, world_size):
        return self.fault != "never shorter" and super()._stays(shape, element_bytes, world_size)

    def sent(self, shapes, element_bytes, channel):
        honest = super().sent(shapes, element_bytes, channel)
        return {op: size + 4 for op, size in honest.items()} if self.fault == "bytes misreported" else honest
