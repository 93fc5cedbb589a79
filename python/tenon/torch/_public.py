"""The functions that users call: `tn.softmax(x)`. They are written out as source, so that a call costs no more than a
hand-written function would, torch.compile can look inside, and help() and editors see a real signature."""

from __future__ import annotations

import builtins
import textwrap
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from tenon.contract import Attr, Input
from tenon.infer import Types
from tenon.torch._grad import compile_source, identifier
from tenon.torch._ops import TorchOp
from tenon.torch._param import Param, plain
from tenon.torch._types import DTYPES, operand

_ANNOTATIONS = {
    "int": "int",
    "axis": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "choice": "str",
    "activation": "str",
    "dtype": "dtype",
    "axes": "Sequence[int]",
    "ints": "Sequence[int]",
}


class _Required:
    """The default of a required parameter that stands behind optional ones."""

    def __repr__(self) -> str:
        return "<required>"


REQUIRED = _Required()


def _is_number(param: Input | Attr) -> bool:
    """A 0-dim input, which may be given as a plain number."""
    return isinstance(param, Input) and param.shape == [] and not param.list and not param.inplace


def _annotation(param: Input | Attr) -> str:
    if isinstance(param, Attr):
        kind = _ANNOTATIONS[param.kind]
    else:
        kind = "Sequence[Tensor]" if param.list else "Tensor | Param | float" if _is_number(param) else "Tensor"
    return f"{kind} | None" if param.optional else kind


def _has_default(param: Input | Attr) -> bool:
    return param.optional or (isinstance(param, Attr) and not param.required)


def _wrapped(text: str, indent: str) -> list[str]:
    """Lines of 100 characters; most need no more than one."""
    if len(text) + len(indent) <= 100:
        return [indent + text]
    return textwrap.wrap(text, 100, initial_indent=indent, subsequent_indent=2 * indent)


class _Public:
    """Writes the public function of one operator."""

    def __init__(self, made: TorchOp) -> None:
        self.made = made
        self.op = made.op
        # Outputs for the gradient are asked for by the gradient, not by users.
        hidden = {o.want_attr for o in self.op.outputs if o.want == "grad"}
        self.params = [p for p in self.op.params if p.name not in hidden]
        self.arguments = ["False" if p.name in hidden else identifier(p.name) for p in self.op.params]
        self.late: list[str] = []  # required behind optional ones

    def signature(self) -> str:
        parts = []
        defaults = False
        for index, param in zip([self.op.params.index(p) for p in self.params], self.params, strict=True):
            name = identifier(param.name)
            if _has_default(param):
                defaults = True
                parts.append(f"{name}: {_annotation(param)} = {self._default(index)}")
            elif defaults:
                self.late.append(name)
                parts.append(f"{name}: {_annotation(param)} = _required")
            else:
                parts.append(f"{name}: {_annotation(param)}")
        asked = any(self.op.outputs[i].want == "asked" for i in self.made.shown)
        returns = "Tensor" if self._returns_one() else "tuple[Tensor, ...]" if self.made.shown else "None"
        returns = "Tensor | tuple[Tensor, ...]" if asked else returns
        return f"def {identifier(self.op.name)}({', '.join(parts)}) -> {returns}:"

    def _default(self, index: int) -> str:
        value = self.made.defaults[index]
        return (
            str(value) if isinstance(value, torch.dtype) else repr(tuple(value) if isinstance(value, list) else value)
        )

    def _returns_one(self) -> bool:
        return len(self.made.shown) == 1

    def doc(self) -> str:
        outputs = [self.op.outputs[i].name for i in self.made.shown]
        lines = [*_wrapped(self.op.doc, ""), "", "Contract:", *_wrapped(self.op.signature, "    ")]
        written = [p.name for p in self.op.inputs if p.inplace]
        updates = [f"Updates {', '.join(written)} in place."] if written else []
        returns = [f"Returns {', '.join(outputs)}."] if outputs else []
        lines += ["", " ".join([*updates, *returns])]
        if len(outputs) < len(self.op.outputs):
            every = ", ".join(o.name + ("?" if o.want != "always" else "") for o in self.op.outputs)
            lines[-1] += f" torch.ops.tenon.{self.op.name} returns {every}."
        asked = [o.name for o in self.op.outputs if o.want == "asked"]
        if asked:
            lines.append(f"Only when asked for (want_<name>=True): {', '.join(asked)}.")
        if self.op.mutates and self.op.grad in (None, "derived"):  # nothing is derived of an update
            lines.append("Tensors that require a gradient are taken inside of torch.no_grad() only.")
        elif self.op.grad is None:
            lines.append("It has no gradient: differentiating through it raises NotImplementedError.")
        return "\n".join(lines)

    def body(self) -> list[str]:
        lines = []
        for name in self.late:
            message = f"{self.op.name}() missing 1 required argument: '{name}'"
            lines += [f"if {name} is _required:", f"    raise TypeError({message!r})"]
        for param in self.params:
            if _is_number(param):
                name = identifier(param.name)
                given = ", ".join(f"{p.name!r}: {identifier(p.name)}" for p in self.params)
                absent = f"{name} is not None and " if param.optional else ""
                lines += [f"if {absent}not isinstance({name}, Tensor):"]
                lines += [f"    {name} = _number({param.name!r}, {name}, {{{given}}})"]
        arguments = ", ".join(self.arguments)
        traced = f"_select(_op({arguments}))"
        if len(self.op.outputs) == 1:
            traced = f"_op({arguments})"
        elif self._returns_one():
            traced = f"_op({arguments})[{self.made.shown[0]}]"
        return [*lines, "if _tracing():", f"    return {traced}", f"return _call({arguments})"]

    def source(self) -> str:
        signature = self.signature()
        return "\n".join([signature, *(f"    {line}" for line in self.body()), ""])


def _number_maker(made: TorchOp) -> Callable[..., Tensor]:
    """Plain numbers for 0-dim inputs become tensors of the type that the contract says, where the others are."""

    def number(name: str, value: float | Param, given: dict[str, Any]) -> Tensor:
        if isinstance(value, Param):
            return value.tensor
        given = {n: plain(v) for n, v in given.items()}
        tensors = {n: [v] for n, v in given.items() if isinstance(v, Tensor)}
        tensors |= {p.name: list(given[p.name] or ()) for p in made.op.inputs if p.list}
        device = next((t[0].device for t in tensors.values() if t), torch.device("cpu"))
        param = next(p for p in made.op.inputs if p.name == name)
        types = Types(made.op, given)
        types.bind([(p, [operand(t) for t in tensors[p.name]]) for p in made.op.inputs if p.name in tensors])
        known = types.bound or "var" not in param.type  # else the call says which tensor is missing
        return torch.tensor(value, dtype=DTYPES[types.of(param.type)] if known else torch.float32, device=device)

    return number


# What the source of a function of tensors alone comes to; formulas mostly are, and compiling costs more than the rest.
# The names are those of the operator's inputs, once they are known, and _op and _call are its own.
_op: Any = None
_call: Any = None
_tracing = torch.compiler.is_dynamo_compiling


def _of_one(a: Tensor) -> Any:
    if _tracing():
        return _op(a)
    return _call(a)


def _of_two(a: Tensor, b: Tensor) -> Any:
    if _tracing():
        return _op(a, b)
    return _call(a, b)


def _of_three(a: Tensor, b: Tensor, c: Tensor) -> Any:
    if _tracing():
        return _op(a, b, c)
    return _call(a, b, c)


_OF_TENSORS = {1: _of_one, 2: _of_two, 3: _of_three}


def _of_tensors(made: TorchOp) -> Callable[..., Any] | None:
    """The public function, where it is one of up to three tensors with one result."""
    op = made.op
    plain = all(isinstance(p, Input) and not (p.optional or p.list or _is_number(p)) for p in op.params)
    if not plain or len(op.outputs) != 1 or len(op.params) not in _OF_TENSORS:
        return None
    params, name = [identifier(p.name) for p in op.params], identifier(op.name)
    code = _OF_TENSORS[len(params)].__code__.replace(co_varnames=tuple(params), co_name=name)
    names = {"__builtins__": builtins.__dict__, "_tracing": _tracing, "_op": made.overload, "_call": made.call}
    function = FunctionType(code, names, name)
    function.__qualname__ = name
    function.__annotations__ = dict.fromkeys([*params, "return"], Tensor)
    return function


def make_public(made: TorchOp) -> Callable[..., Any]:
    """The public function of an operator."""
    function = _of_tensors(made) or _from_source(made)
    function.__doc__ = _Public(made).doc()
    function.__module__ = "tenon.torch"
    return function


def _from_source(made: TorchOp) -> Callable[..., Any]:
    writer = _Public(made)
    names = {
        "Tensor": Tensor,
        "Param": Param,
        "Sequence": Sequence,
        "dtype": torch.dtype,
        "torch": torch,
        "_required": REQUIRED,
        "_tracing": _tracing,
        "_op": made.overload,
        "_call": made.call,
        "_select": made.select,
        "_number": _number_maker(made),
    }
    function: Callable[..., Any] = compile_source(writer.source(), made.op.name, names)[identifier(made.op.name)]
    return function
