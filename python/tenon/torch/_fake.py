"""Fake kernels: what an operator returns, on sizes that may be symbolic and without data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tenon.contract import Attr, Operand, Operator, dense_strides, followed, is_permuted_dense
from tenon.infer import Binding
from tenon.torch._inductor import tell_inductor
from tenon.torch._types import DTYPES, NAMES, argument

_check: Callable[..., None] = torch._check


def _require(condition: Any, message: str) -> None:
    """A condition on sizes: a guard where they are symbolic."""
    if isinstance(condition, bool):
        if not condition:
            raise ValueError(message)
    else:
        _check(condition, lambda: message)


def _is_one(size: Any) -> bool:
    """Whether a size is 1; what data will tell counts as another, which is a guard where it meets others."""
    return not is_unknown(size) and bool(size == 1)


def bind(op: Operator, inputs: Sequence[Any], attrs: dict[str, Any]) -> Binding:
    """A call whose sizes may be symbolic."""
    return Binding(op, [argument(i) for i in inputs], attrs, _require, _is_one)


def _attribute(value: Any) -> Any:
    return NAMES[value] if isinstance(value, torch.dtype) else value


def one_device(op: Operator, inputs: Sequence[Any]) -> torch.device:
    """Where the call's tensors are; a message where that is not one place."""
    found: Tensor | None = None
    first = ""
    for param, value in zip(op.inputs, inputs, strict=True):
        for tensor in () if value is None else (value,) if isinstance(value, Tensor) else value:
            if found is None:
                found, first = tensor, param.name
            elif tensor.device != found.device:
                raise RuntimeError(f"{op.name}: {param.name} is on {tensor.device}, but {first} is on {found.device}")
    return found.device if found is not None else torch.device("cpu")


def is_unknown(size: Any) -> bool:
    """A size that data will tell: nothing can be asked about it."""
    if not isinstance(size, torch.SymInt):
        return False
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(size))


def output_strides(op: Operator, index: int, shape: Sequence[int], inputs: Sequence[Any]) -> Sequence[int]:
    """How the operator lays out an output of a call with these inputs."""
    if any(is_unknown(size) for size in shape):
        return torch.empty(shape, device="meta").stride()
    for i in followed(op, op.outputs[index]):
        given = inputs[i]
        if isinstance(given, Tensor) and tuple(given.shape) == tuple(shape):
            return given.stride() if is_permuted_dense(shape, given.stride()) else dense_strides(shape)
    return dense_strides(shape)


def _make(op: Operator, index: int, spec: Operand | None, inputs: Any, device: torch.device) -> Tensor | None:
    if spec is None:
        return None
    kind, shape = spec
    strides = output_strides(op, index, shape, inputs)
    return torch.empty_strided(shape, strides, dtype=DTYPES[kind], device=device)


def bind_call(op: Operator, args: Sequence[Any]) -> tuple[list[Any], list[Operand | None], torch.device]:
    """The inputs among all arguments of a call, the types and shapes of its outputs, and where its tensors are."""
    inputs = [a for p, a in zip(op.params, args, strict=True) if not isinstance(p, Attr)]
    attrs = {p.name: _attribute(a) for p, a in zip(op.params, args, strict=True) if isinstance(p, Attr)}
    device = one_device(op, inputs)
    return inputs, bind(op, inputs, attrs).outputs(), device


def _refuse_in_onnx(op: Operator) -> None:
    """Says it while torch.onnx.export looks at the call: what it makes of an update, it cannot name."""
    if torch.onnx.is_in_onnx_export():
        written = ", ".join(p.name for p in op.inputs if p.inplace)
        raise NotImplementedError(f"{op.name}: ONNX cannot have this operator, which updates {written} in place")


def fake_kernel(op: Operator, defaults: Sequence[Any]) -> Callable[..., Any]:
    """The fake kernel of an operator. `defaults` are of all parameters of its schema: torch leaves equal ones out."""
    names = [p.name for p in op.params]

    def fake(*given: Any, **named: Any) -> Any:
        tell_inductor()
        if op.mutates:
            _refuse_in_onnx(op)
        args = [*given, *defaults[len(given) :]]
        for name, value in named.items():
            args[names.index(name)] = value
        inputs, specs, device = bind_call(op, args)
        made = [_make(op, k, spec, inputs, device) for k, spec in enumerate(specs)]
        return made[0] if len(made) == 1 else tuple(made) if made else None

    return fake
