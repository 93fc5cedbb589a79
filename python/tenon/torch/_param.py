"""Dynamic parameters: numbers that change between calls, in the memory of a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map


class Param:
    """A number that operators take where they take a 0-dim tensor, and that one call changes.

    ``lr = tn.Param(1e-3, device="cuda")``, then ``tn.adamw_step(…, lr=lr, …)``, then ``lr.set(1e-4)``. The new value is
    written in the order of the current stream, from any thread: what was launched before still sees the old one.
    Nothing is compiled again, and a captured CUDA graph uses the new value from its next replay on. `lr.tensor` is the
    tensor.
    """

    def __init__(
        self,
        value: float = 0.0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        self.tensor: Tensor = torch.full((), value, dtype=dtype, device=device)

    def set(self, value: float) -> None:
        """Changes the value, in the order of the current stream."""
        with torch.no_grad():
            self.tensor.fill_(value)

    def __float__(self) -> float:
        return float(self.tensor)

    def __repr__(self) -> str:
        return f"tn.Param({float(self)}, dtype={self.tensor.dtype}, device={str(self.tensor.device)!r})"

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """torch's own functions take the tensor, among others too."""
        args, kwargs = tree_map(plain, (args, kwargs or {}))
        return function(*args, **kwargs)


def plain(value: Any) -> Any:
    """The tensor of a parameter; anything else as it is."""
    return value.tensor if isinstance(value, Param) else value
