"""A compressor for tests of the gradient engine, which sends the largest numbers and keeps the rest for later."""

import math

import torch

from parbench.api import GatherCompressor, Paper


class Largest(GatherCompressor):
    """Sends the largest tenth of each gradient and keeps the rest for later."""

    name = "largest"
    paper = Paper("none", "https://example.org")
    feedback = True

    def __init__(self, ratio: float = 0.1) -> None:
        self.ratio = ratio
        self.seen = {}

    def kept(self, elements):
        return math.ceil(self.ratio * elements)

    def encode(self, grad, key):
        self.seen[key] = self.seen.get(key, 0) + 1
        flat = grad.reshape(-1)
        places = flat.abs().topk(self.kept(flat.numel())).indices
        return [flat[places], places.int()]

    def decode(self, message, grad, key):
        values, places = message
        return torch.zeros_like(grad).reshape(-1).index_put((places.long(),), values).view(grad.shape)

    def length(self, shape, element_bytes):
        return self.kept(math.prod(shape)) * (element_bytes + 4)
