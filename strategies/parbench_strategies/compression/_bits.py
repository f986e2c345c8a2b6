"""Bits are packed eight to a byte, little end first; numbers of several bits as one plane of bits after the other.

codes of 3 bits   0b101 0b011 0b110 ...  ->  |bits 0 of all|bits 1 of all|bits 2 of all|, each padded to whole bytes
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# Eight bytes of 0 or 1, read as one number and multiplied by this, have their bits side by side in the top byte; the
# second constant spreads a byte over eight, the third keeps one bit of each.
_GATHER = 0x0102040810204080
_SPREAD = 0x0101010101010101
_ONE_EACH = -0x7FBFDFEFF7FBFDFF


def bytes_of_bits(count: int, bits: int = 1) -> int:
    """Return the bytes that `count` numbers of so many bits take."""
    return bits * (-(-count // 8)) if bits < 8 else count


def packed(bits_N: Tensor) -> Tensor:
    """Return the bytes of a flat tensor of truth values."""
    if bits_N.device.type == "cpu":
        return torch.from_numpy(np.packbits(bits_N.numpy(), bitorder="little"))
    padded = bits_N.new_zeros(-(-bits_N.numel() // 8) * 8)
    padded[: bits_N.numel()] = bits_N
    return ((padded.view(torch.int64) * _GATHER) >> 56).to(torch.uint8)


def unpacked(bytes_M: Tensor, count: int) -> Tensor:
    """Return the first `count` truth values of packed bytes."""
    if bytes_M.device.type == "cpu":
        return torch.from_numpy(np.unpackbits(bytes_M.numpy(), count=count, bitorder="little")).view(torch.bool)
    spread = (bytes_M.to(torch.int64) * _SPREAD) & _ONE_EACH
    return (spread.view(torch.uint8) != 0)[:count]


def packed_codes(codes_N: Tensor, bits: int) -> Tensor:
    """Return the bytes of small numbers (uint8, each below 2^bits), plane by plane; eight bits are left as they are."""
    if bits == 8:
        return codes_N
    return torch.cat([packed((codes_N & (1 << bit)) != 0) for bit in range(bits)])


def unpacked_codes(bytes_M: Tensor, count: int, bits: int) -> Tensor:
    """Return the first `count` numbers of so many bits as uint8."""
    if bits == 8:
        return bytes_M
    codes_N = torch.zeros(count, dtype=torch.uint8, device=bytes_M.device)
    for bit, plane in enumerate(bytes_M.view(bits, -1)):
        codes_N |= unpacked(plane, count).view(torch.uint8) << bit
    return codes_N
