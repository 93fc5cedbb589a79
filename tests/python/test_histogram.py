"""histogram counts what NumPy counts, on its edges as well."""

from __future__ import annotations

import here
import numpy as np
import pytest
import torch

import tenon.torch as tn

TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int32, torch.int64, torch.uint8]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    ("bins", "low", "high"), [(1, 0.0, 3.0), (10, -3.0, 3.0), (300, -4.0, 2.0), (20000, -5.0, 5.0)]
)
def test_as_numpy(dtype: torch.dtype, bins: int, low: float, high: float) -> None:
    x = (here.randn(300, 700) * 3).round(decimals=1).abs().to(dtype)  # many are on an edge
    counts = tn.histogram(x, bins, low, high)
    want = np.histogram(x.double().cpu().numpy(), bins, (low, high))[0]
    edges = low + np.arange(bins + 1) * ((high - low) / bins)
    on_edge = np.isin(x.double().cpu().numpy(), edges).sum()  # there NumPy's edges may be rounded otherwise
    assert counts.dtype == torch.int64 and counts.shape == (bins,)
    assert counts.sum().item() == want.sum()
    assert np.abs(counts.cpu().numpy() - want).sum() <= 2 * on_edge


def test_the_edges() -> None:
    """A bin has its beginning, the last one its end as well; NaN, infinities and what is outside are in none."""
    x = here.tensor([0.0, 0.25, 0.5, 1.0, -0.1, 1.1, float("nan"), float("inf"), -float("inf")])
    assert tn.histogram(x, bins=4, min=0.0, max=1.0).tolist() == [1, 1, 1, 1]
    for name, high in (("1/3", 1 / 3), ("0.7", 0.7)):
        assert tn.histogram(here.tensor([high], dtype=torch.float64), 7, 0.0, high).tolist() == [0] * 6 + [1], name


def test_views_and_messages() -> None:
    x = here.randn(40, 60)
    assert torch.equal(tn.histogram(x.T[::2], 9, -1.0, 1.0), tn.histogram(x.T[::2].contiguous(), 9, -1.0, 1.0))
    with pytest.raises(ValueError, match=r"needs (low < high|min < max)"):
        tn.histogram(x, 4, 1.0, 1.0)
    with pytest.raises(ValueError, match="needs bins >= 1"):
        tn.histogram(x, 0, 0.0, 1.0)
    with pytest.raises(TypeError, match="missing 2 required"):
        tn.histogram(x, 10)  # type: ignore[call-arg]
