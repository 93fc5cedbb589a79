"""torch's names for Tenon's element types, and tensors as contracts see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tenon.contract import NUMPY_NAMES, Argument, Attr, Operand, Operator, attribute_text

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, theirs) for name, theirs in NUMPY_NAMES.items()}
NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}


def operand(tensor: Tensor) -> Operand:
    """The type and sizes of a tensor; sizes may be symbolic."""
    name = NAMES.get(tensor.dtype)
    if name is None:
        raise TypeError(f"Tenon has no type for {tensor.dtype}")
    return name, tuple(tensor.shape)


def argument(value: Any) -> Argument:
    """An input of a call: a tensor, a list of them, or None."""
    if value is None:
        return None
    return operand(value) if isinstance(value, Tensor) else [operand(t) for t in value]


# ---- attributes as text ----------------------------------------------------------------------------------------------

Written = tuple[int, str, str, bool]  # place among the parameters, name, kind, only where it is true


def written_attributes(op: Operator) -> tuple[Written, ...]:
    """What attributes_text needs to know of an operator; plain values, so that dynamo can look inside."""
    return tuple((i, a.name, a.kind, a.implied) for i, a in enumerate(op.params) if isinstance(a, Attr))


def _value_text(kind: str, value: Any) -> str:
    return NAMES[value] if kind == "dtype" else attribute_text(kind, value)


def attributes_text(attributes: Sequence[Written], args: Sequence[Any]) -> str:
    """The attributes among all arguments of a call as the C library reads them: "eps=1e-05 mode='sum' "."""
    text = ""
    for place, name, kind, implied in attributes:
        value = args[place]
        if value is not None and (value or not implied):
            text += f"{name}={_value_text(kind, value)} "
    return text
