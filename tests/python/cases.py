"""Calls to test with, made from the samples in the operator table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import here
import torch
from torch import Tensor

import tenon
import tenon.torch as tn
from tenon.contract import Attr, Operator
from tenon.infer import Types
from tenon.torch._ops import TorchOp, torch_op
from tenon.torch._types import DTYPES


@dataclass(frozen=True)
class Case:
    """One sample of one operator."""

    op: Operator
    sample: Any

    def __str__(self) -> str:
        return f"{self.op.name} {self.sample['text']}".replace(" ", "-")

    @property
    def torch_op(self) -> TorchOp:
        return torch_op(self.op.name)

    @property
    def numel(self) -> int:
        return max((torch.Size(i["shape"]).numel() for i in self.sample["inputs"]), default=0)

    def kind(self, given: Any, T: str, same: bool = False) -> str:
        types = Types(self.op, self.sample["attrs"])
        said = {} if same else self.sample["types"]
        types.bound.update({name: said.get(name, T) for name in self.op.types}, T=T)
        return types.of(given["type"])

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
    made = [Case(op, s) for op in tenon.ops().values() for s in op.samples if not s["bench"]]
    return [c for c in made if where(c) and (most is None or c.numel <= most)]


def one_each(where: Callable[[Case], bool] = lambda case: True) -> list[Case]:
    """For each operator the sample with most inputs."""
    best: dict[str, Case] = {}
    for case in cases(4096, where):
        other = best.get(case.op.name)
        if case.numel and (other is None or len(case.sample["inputs"]) > len(other.sample["inputs"])):
            best[case.op.name] = case
    return list(best.values())


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


# How far results of a type may be from those of float64, relative and absolute. The exact bounds are `tenon check`'s.
TOLERANCE = {"f64": (1e-9, 1e-9), "f32": (2e-4, 2e-5), "bf16": (5e-2, 5e-2), "f16": (1e-2, 1e-2)}


def assert_close(have: Any, want: Any, T: str = "f32", scale: float = 1.0) -> None:
    have, want = list(tensors(have)), list(tensors(want))
    assert len(have) == len(want)
    rtol, atol = TOLERANCE[T]
    for a, b in zip(have, want, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(
            a.double(), b.double(), rtol=scale * rtol, atol=scale * atol, equal_nan=True, check_device=False
        )


def differentiable_inputs(case: Case) -> list[int]:
    """The parameters that the rule has gradients for."""
    named = {r for s in case.op.rule.statements if not s.local for r in s.results} if case.op.rule else set()
    return [i for i, p in enumerate(case.op.params) if p.name in named]


def smooth_outputs(case: Case, outputs: Any) -> list[Tensor]:
    """The outputs that a gradient flows through."""
    return [t for t in tensors(outputs) if t.requires_grad]
