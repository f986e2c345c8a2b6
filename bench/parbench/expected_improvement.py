"""Trials of one number: a Gaussian process of what was found says where most improvement is expected (`bayes_opt`)."""

from __future__ import annotations

from typing import final

from parbench.errors import MissingError


@final
class Trials:
    """Suggests where to try next; the same trials get the same suggestions.

    Args:
        low: smallest number.
        high: largest number.
        explores: how much larger than the best an expected improvement must be, in parts of the first cost (xi).

    Raises:
        MissingError: bayesian-optimization is not installed.
    """

    def __init__(self, low: float, high: float, explores: float) -> None:
        try:
            from bayes_opt import BayesianOptimization
            from bayes_opt.acquisition import ExpectedImprovement
        except ImportError as error:
            raise MissingError("the search needs bayesian-optimization: pip install 'parbench[search]'") from error
        self._found = BayesianOptimization(
            f=None,
            pbounds={"x": (low, high)},
            acquisition_function=ExpectedImprovement(xi=explores),
            random_state=0,
            verbose=0,
            allow_duplicate_points=True,  # where only few numbers differ in effect
        )
        self._costs: list[tuple[float, float]] = []

    def next(self) -> float:
        """Return where to try."""
        return float(self._found.suggest()["x"])

    def tell(self, x: float, cost: float) -> None:
        """Say what a trial at `x` cost."""
        self._costs.append((cost, x))
        # As parts of the first, so that what counts as an improvement does not depend on the unit.
        self._found.register(params={"x": x}, target=-cost / self._costs[0][0])

    @property
    def best(self) -> float:
        """Where a trial cost least."""
        return min(self._costs)[1]
