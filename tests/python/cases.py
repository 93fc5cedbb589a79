"""Calls to test with, made from the samples in the operator table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import here
import samples
import torch
from samples import TOLERANCE
from samples import differentiable_inputs as differentiable_inputs
from torch import Tensor

import tenon.torch as tn
from tenon.contract import Attr
from tenon.torch._ops import TorchOp, torch_op
from tenon.torch._types import DTYPES


class Case(samples.Case):
    """One sample of one operator."""

    @property
    def torch_op(self) -> TorchOp:
        return torch_op(self.op.name)

    def make(
        self,
        T: str = "f32",
        grad: bool = False,
        change: Callable[[Tensor], Tensor] | None = None,
        same: bool = False,
    ) -> list[Any]:
        """All arguments of the operator's schema, by position.

        `change` may lay the tensors out in another way; `same`: all type variables are T, whatever the sample says.
        """
        made: dict[str, Any] = {p.name: None for p in self.op.inputs}
        for given in self.sample["inputs"]:
            tensor = self._tensor(given, DTYPES[self.kind(given, T, same)])
            param = next(p for p in self.op.inputs if p.name == given["name"])
            if change is not None and not param.inplace:
                tensor = change(tensor)
            if grad and tensor.is_floating_point() and not param.inplace:
                tensor.requires_grad_()
            if param.list:
                made[param.name] = [*(made[param.name] or ()), tensor]
            else:
                made[param.name] = tensor
        for attr, default in zip(self.op.params, self.torch_op.defaults, strict=True):
            if isinstance(attr, Attr):
                made[attr.name] = self.sample["attrs"].get(attr.name, default)
        return [made[p.name] for p in self.op.params]

    @staticmethod
    def _tensor(given: Any, dtype: torch.dtype) -> Tensor:
        shape = given["shape"]
        if dtype == torch.bool:
            return here.rand(shape) > 0.3
        if not dtype.is_floating_point:
            return here.randint(0, given["below"] or 3, shape, dtype=dtype)
        values = here.rand(shape, dtype=torch.float64) + 0.5 if given["positive"] else here.randn(shape).double()
        return values.to(dtype)

    def public(self, args: list[Any]) -> dict[str, Any]:
        """The same arguments for the public function, by name."""
        hidden = {o.want_attr for o in self.op.outputs if o.want == "grad"}
        named = zip(self.op.params, args, strict=True)
        return {p.name: a for p, a in named if p.name not in hidden}

    def call(self, args: list[Any]) -> Any:
        """What the public function returns."""
        return getattr(tn, self.op.name)(**self.public(args))


def cases(most: int | None = None, where: Callable[[Case], bool] = lambda case: True) -> list[Case]:
    """Every sample that is not for benchmarks."""
    return samples.cases(Case, most, where)


def one_each(where: Callable[[Case], bool] = lambda case: True) -> list[Case]:
    """For each operator the sample with most inputs."""
    return samples.one_each(Case, where)


def tensors(values: Any) -> Iterator[Tensor]:
    """The tensors in arguments or results."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from tensors(value)


def clone(args: list[Any]) -> list[Any]:
    """Copies with the same strides, for operators that write."""

    def one(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().clone(memory_format=torch.preserve_format).requires_grad_(value.requires_grad)
        return [one(v) for v in value] if isinstance(value, list) and value and isinstance(value[0], Tensor) else value

    return [one(a) for a in args]


def assert_close(have: Any, want: Any, T: str = "f32", scale: float = 1.0) -> None:
    have, want = list(tensors(have)), list(tensors(want))
    assert len(have) == len(want)
    rtol, atol = TOLERANCE[T]
    for a, b in zip(have, want, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(
            a.double(), b.double(), rtol=scale * rtol, atol=scale * atol, equal_nan=True, check_device=False
        )


def smooth_outputs(case: Case, outputs: Any) -> list[Tensor]:
    """The outputs that a gradient flows through."""
    return [t for t in tensors(outputs) if t.requires_grad]
