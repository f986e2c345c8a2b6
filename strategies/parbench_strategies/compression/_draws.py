"""Draws are random numbers of one compressor, made from seed, key and step: no state, and none of torch's own used."""

from __future__ import annotations

import hashlib

import torch

from parbench.api import Compressor


def shared(compressor: Compressor, key: str, device: torch.device) -> torch.Generator:
    """Return a generator of this step, the same on every rank."""
    return _generator(f"{compressor.seed}/{compressor.step}/{key}", device)


def own(compressor: Compressor, key: str, device: torch.device) -> torch.Generator:
    """Return a generator of this step and this rank alone: errors that ranks draw apart cancel in the mean."""
    return _generator(f"{compressor.seed}/{compressor.step}/{key}/rank {compressor.rank}", device)


def lasting(compressor: Compressor, key: str, device: torch.device) -> torch.Generator:
    """Return a generator that is the same in every step and on every rank."""
    return _generator(f"{compressor.seed}/{key}", device)


def _generator(what: str, device: torch.device) -> torch.Generator:
    digest = hashlib.blake2b(what.encode(), digest_size=7).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest))
