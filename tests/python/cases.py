"""Calls to test with, made from the samples in the operator table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import here
import samples
import torch
from samples import dealt as dealt
from samples import differentiable_inputs as differentiable_inputs
from samples import shown as shown
from torch import Tensor

from tenon._frameworks import TorchFunction
from tenon.contract import Attr
from tenon.torch._ops import TorchOp, torch_op
from tenon.torch._public import functions
from tenon.torch._types import DTYPES


class _Random:
    """Random numbers of torch, on the device of the tests; torch.manual_seed decides which."""

    def random(self, shape: Any) -> Tensor:
        return here.rand(shape, dtype=torch.float64)

    def integers(self, low: int, high: int, shape: Any) -> Tensor:
        return here.randint(low, high, shape)

    def standard_normal(self, shape: Any) -> Tensor:
        return here.randn(shape)


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

        def changed(tensor: Tensor) -> Tensor:
            tensor = tensor if change is None else change(tensor)
            return tensor.requires_grad_() if grad and tensor.is_floating_point() else tensor

        def converted(values: Any, kind: str) -> Tensor:
            return torch.as_tensor(values).to(here.DEVICE, DTYPES[kind])

        made = self.inputs(T, _Random(), converted, same)
        for param in self.op.inputs:
            value = made[param.name]
            if value is not None and not param.inplace:
                made[param.name] = [changed(t) for t in value] if param.list else changed(value)
        for attr, default in zip(self.op.params, self.torch_op.defaults, strict=True):
            if isinstance(attr, Attr):
                value = self.sample["attrs"].get(attr.name, default)
                made[attr.name] = DTYPES[value] if attr.kind == "dtype" and isinstance(value, str) else value
        return [made[p.name] for p in self.op.params]

    def public(self, args: list[Any]) -> dict[str, Any]:
        """The same arguments for the public function, by name."""
        given = {p.name: a for p, a in zip(self.op.params, args, strict=True)}
        return TorchFunction(self.op, self.torch_op.shown).keywords(given)

    def call(self, args: list[Any]) -> Any:
        """What the public function returns; torch.compile looks in here."""
        hidden = [o.want_attr for o in self.op.outputs if o.want == "grad"]
        return functions[self.op.name](*(a for p, a in zip(self.op.params, args, strict=True) if p.name not in hidden))


cases, one_each = partial(samples.cases, Case), partial(samples.one_each, Case)
every_sample, each_operator = partial(samples.every_sample, Case), partial(samples.each_operator, Case)


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
    made = [[t.detach().cpu().double().numpy() for t in tensors(side)] for side in (have, want)]
    samples.assert_all_close(*made, T, scale)
