"""Gradients against central differences, for every framework: along a random direction for each input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Arrays = Sequence[np.ndarray]


def assert_gradients(
    function: Callable[[Arrays], Arrays], gradients: Callable[[Arrays, Arrays], Arrays], values: Arrays
) -> None:
    """`gradients` of the values (float64), for given gradients of the results of `function`."""
    random = np.random.default_rng(0)
    weights = [random.standard_normal(result.shape) for result in function(values)]
    step = 1e-6
    for i, d in enumerate(gradients(values, weights)):
        direction = random.standard_normal(values[i].shape)

        def along(distance: float, i: int = i, direction: np.ndarray = direction) -> float:
            moved = [*values[:i], values[i] + distance * direction, *values[i + 1 :]]
            # the logarithm of a sum of nothing is -inf, and stays so
            results = (np.where(np.isneginf(r), 0, r) for r in function(moved))
            return sum(float(np.vdot(w, r)) for w, r in zip(weights, results, strict=True))

        assert d.shape == values[i].shape
        if values[i].size == 0:  # nothing to move; a result may be infinite, as the logsumexp of nothing is
            continue
        want = (along(step) - along(-step)) / (2 * step)
        np.testing.assert_allclose(np.vdot(d, direction), want, rtol=1e-5, atol=1e-6)
