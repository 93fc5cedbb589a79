"""What users give for a call, as contracts have it: the same in every framework."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenon.contract import FLOATS, Attr, Input, Operand, Operator
from tenon.infer import Types

DtypeName = Callable[[Any], str | None]  # Tenon's name of what a framework takes for an element type; None: it has none

# ---- inputs ----------------------------------------------------------------------------------------------------------


def is_number(param: Input | Attr) -> bool:
    """A 0-dim input, which may be given as a plain number."""
    return isinstance(param, Input) and param.shape == [] and not param.list and not param.inplace


def is_broadcast(param: Input | Attr) -> bool:
    """An input of any shape that broadcasts, alone and only read: a plain number stands for an array of it. Formulas
    without a contract give an input a pack of its own, s_<name>, where not all of them share one."""
    if not isinstance(param, Input) or param.list or param.inplace or len(param.shape) != 1:
        return False
    (dim,) = param.shape
    broadcasts = bool(dim.get("broadcast")) or dim.get("pack") == f"s_{param.name}"
    return "pack" in dim and broadcasts and param.type.get("fixed") != ["bool"]


def takes_number(param: Input | Attr) -> bool:
    """Whether a plain number may stand for an input."""
    return is_number(param) or is_broadcast(param)


def is_told(op: Operator, param: Input) -> bool:
    """Whether the others say which type a 0-dim input has, so that what NumPy made of a number need not fit."""
    others = {p.type.get("var") for p in op.inputs if not (p.optional or is_number(p))}
    return param.type.get("var") in {None, *others}


def number_type(
    op: Operator,
    param: Input,
    tensors: Sequence[tuple[Input, Sequence[Operand]]],
    given: Mapping[str, Any],
    dtype_name: DtypeName,
) -> str:
    """The element type that a plain number for `param` gets in a call with these tensors. `given` has the attributes by
    name: a type may be one of them."""
    # Not op.attrs: torch.compile looks in here, and cannot follow a property that is computed once.
    dtypes = [p for p in op.params if isinstance(p, Attr) and p.kind == "dtype"]
    attrs = {a.name: attribute_value(op, a, given[a.name], dtype_name) for a in dtypes}
    types = Types(op, attrs)
    types.bind(tensors)
    known = types.bound or "var" not in param.type  # else the call says which tensor is missing
    return types.of(param.type) if known else "f32"


def _is_of(value: Any, kind: str) -> bool:
    """Whether a number is one of an element type, for floats after rounding."""
    try:
        if kind in FLOATS or kind == "bool":
            return not getattr(value, "imag", 0) and float(value) is not None
        low, high = (0, 1 << 8) if kind == "u8" else (-1 << (int(kind[1:]) - 1), 1 << (int(kind[1:]) - 1))
        return bool(int(value) == value and low <= value < high)
    except (TypeError, ValueError, OverflowError):
        return False


def check_number(op: Operator, param: Input, value: Any, kind: str) -> None:
    """Raises where a plain number for a 0-dim input is none of its type; frameworks would make an integer of 1.5."""
    if not _is_of(value, kind):
        raise ValueError(f"{op.name}: {param.name} is {value!r}, which is no {kind}")


def free_inputs(op: Operator) -> list[tuple[int, Input]]:
    """The inputs, with their places among the parameters, that may be cast: of a type variable, alone and only read."""
    inputs = ((i, p) for i, p in enumerate(op.params) if isinstance(p, Input))
    return [(i, p) for i, p in inputs if "var" in p.type and not (p.type.get("wrap") or p.inplace or p.list)]


def alike_inputs(op: Operator) -> list[list[int]]:
    """Places of inputs that have one type by the contract, where calls may have more: several, none of them written."""
    written = {p.type.get("var") for p in op.inputs if p.inplace or p.list}
    places: dict[str, list[int]] = {}
    for i, param in free_inputs(op):
        places.setdefault(param.type["var"], []).append(i)
    return [found for var, found in places.items() if len(found) > 1 and var not in written]


def listed(op: Operator, param: Input, value: Any, of: str) -> Sequence[Any]:
    """What a user gives for a list of tensors: an array is one as well, of its rows, and nobody means that."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"{op.name}: {param.name} must be a list of {of}, not {type(value).__name__}")
    return value


# ---- attributes ------------------------------------------------------------------------------------------------------

_NEEDS = {
    "int": "an int",
    "axis": "an int",
    "axes": "ints",
    "ints": "ints",
    "float": "a float",
    "bool": "a bool",
    "dtype": "a type that Tenon has",
    "str": "a str",
    "choice": "a str",
    "activation": "a str",
}


def _listed_axes(attr: Attr, value: Any) -> Any:
    """A single axis stands for a list of it."""
    single = hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0
    return [value] if attr.kind == "axes" and single else value


def _int64(value: Any) -> int:
    """An integer as the C library has them; OverflowError where it needs more than 64 bits."""
    made = operator.index(value)
    if not -(1 << 63) <= made < 1 << 63:
        raise OverflowError
    return made


def wrong_attribute(op: Operator, attr: Attr, value: Any) -> TypeError:
    return TypeError(f"{op.name}: {attr.name} is {value!r}, needs {_NEEDS[attr.kind]}")


def attribute_value(op: Operator, attr: Attr, value: Any, dtype_name: DtypeName) -> Any:
    """What a user gives for an attribute, as contracts have it."""
    if value is None:
        # No way to ask for a default, which may be something else than what None says elsewhere.
        if not attr.optional and not attr.required:
            needs = f"{_NEEDS[attr.kind]}; leave it out for the default, {attr.default!r}"
            raise TypeError(f"{op.name}: {attr.name} is None, needs {needs}")
        return None
    try:
        if isinstance(value, str) and attr.kind != "dtype":
            if attr.kind in ("str", "choice", "activation"):
                return value
            raise TypeError
        if attr.kind in ("int", "axis"):
            return _int64(value)
        if attr.kind in ("axes", "ints"):
            return [_int64(v) for v in _listed_axes(attr, value)]
        if attr.kind == "float":
            return float(value)
        if attr.kind == "bool":
            return bool(value)
        name = dtype_name(value) if attr.kind == "dtype" else None
    except OverflowError:
        raise ValueError(f"{op.name}: {attr.name} is {value!r}, beyond 64 bits") from None
    except (TypeError, ValueError, RuntimeError):  # the last is torch's, of a tensor with many elements
        name = None
    if name is None:
        raise wrong_attribute(op, attr, value)
    return name
