"""Randomness is a variant's own random state: variants alive together draw (for dropout) what each draws alone."""

from __future__ import annotations

from typing import final

import torch


@final
class Randomness:
    """Starts from the present state of torch's generators; entered again, it goes on where it was left."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._inside = self._states()
        self._outside = self._inside

    def __enter__(self) -> None:
        self._outside = self._states()
        self._draw_from(self._inside)

    def __exit__(self, *exc: object) -> None:
        self._inside = self._states()
        self._draw_from(self._outside)

    def _states(self) -> list[torch.Tensor]:
        host = [torch.get_rng_state()]
        return host if self._device.type != "cuda" else [*host, torch.cuda.get_rng_state(self._device)]

    def _draw_from(self, states: list[torch.Tensor]) -> None:
        torch.set_rng_state(states[0])
        for state in states[1:]:
            torch.cuda.set_rng_state(state, self._device)
