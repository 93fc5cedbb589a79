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
from tenon.torch._ops import TorchOp, same_type
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


_WIDTH = 120  # of a line of source


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


def _has_out(made: TorchOp) -> bool:
    """A single result may be written into a tensor that the caller has."""
    single = len(made.shown) == 1 and made.op.outputs[made.shown[0]].want == "always"
    return single and not made.op.mutates and all(p.name != "out" for p in made.op.params)


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
        self.has_out = _has_out(made)

    def parameters(self) -> list[str]:
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
        return [*parts, "*", "out: Tensor | None = None"] if self.has_out else parts

    def returns(self) -> str:
        if not self.made.shown:
            return "None"
        asked = any(self.op.outputs[i].want == "asked" for i in self.made.shown)
        returns = "Tensor" if self._returns_one() else "tuple[Tensor, ...]"
        return "Tensor | tuple[Tensor, ...]" if asked else returns

    def _default(self, index: int) -> str:
        value = self.made.defaults[index]
        if isinstance(value, str):
            return f'"{value}"'
        if isinstance(value, torch.dtype):
            return str(value)
        return repr(tuple(value) if isinstance(value, list) else value)

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
        if self.has_out:
            lines.append("With out=tensor the result is copied there; nothing can then be differentiated.")
        if self.op.mutates and self.op.grad in (None, "derived"):  # nothing is derived of an update
            lines.append("Tensors that require a gradient are taken inside of torch.no_grad() only.")
        elif self.op.grad is None:
            lines.append("It has no gradient: differentiating through it raises NotImplementedError.")
        return "\n".join(lines)

    def _into_out(self) -> list[str]:
        names = [identifier(p.name) for p in self.params]
        call = f"{identifier(self.op.name)}({', '.join(names)})"
        return [
            "if out is not None:",
            f"    _refuse_grad(out, ({', '.join(names)},))",
            f"    return _into(out, {call})",
        ]

    def body(self) -> list[str]:
        lines = self._into_out() if self.has_out else []
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
        groups = [", ".join(identifier(self.op.params[i].name) for i in places) for places in self.made.alike]
        promoted = [f"    {group} = _same_type({group})" for group in groups]
        return [*lines, "if _tracing():", *promoted, f"    return {traced}", f"return _call({arguments})"]

    def source(self) -> str:
        signature = f"def {identifier(self.op.name)}({', '.join(self.parameters())}) -> {self.returns()}:"
        return "\n".join([signature, *(f"    {line}" for line in self.body()), ""])


def write_stub(made: TorchOp) -> str:
    """The public function of an operator as type checkers and editors read it."""
    writer = _Public(made)
    parts = [part.replace("= _required", "= ...") for part in writer.parameters()]
    head, tail = f"def {identifier(made.op.name)}(", f") -> {writer.returns()}:"
    if len(head + ", ".join(parts) + tail) > _WIDTH:
        inner = f"    {', '.join(parts)}\n"
        parts = [inner if len(inner) <= _WIDTH + 1 else "".join(f"    {part},\n" for part in parts)]
        head += "\n"
    doc = textwrap.indent(writer.doc(), "    ").strip()
    return f'{head}{", ".join(parts)}{tail}\n    """{doc}\n    """\n'


def _number_maker(made: TorchOp) -> Callable[..., Tensor]:
    """Plain numbers for 0-dim inputs become tensors of the type that the contract says, where the others are."""

    def number(name: str, value: float | Param, given: dict[str, Any]) -> Tensor:
        if isinstance(value, Param):
            return value.tensor
        lists = {n: v if isinstance(v, list | tuple) else [plain(v)] for n, v in given.items()}
        tensors = {n: [t for t in values if isinstance(t, Tensor)] for n, values in lists.items()}
        device = next((t.device for values in tensors.values() for t in values), torch.device("cpu"))
        param = next(p for p in made.op.inputs if p.name == name)
        types = Types(made.op, given)
        types.bind([(p, [operand(t) for t in tensors[p.name]]) for p in made.op.inputs])
        known = types.bound or "var" not in param.type  # else the call says which tensor is missing
        return torch.tensor(value, dtype=DTYPES[types.of(param.type)] if known else torch.float32, device=device)

    return number


def _out_maker(made: TorchOp) -> tuple[Callable[..., None], Callable[..., Tensor]]:
    """What `out=` does: refuses calls that need a gradient, as torch's functions do, and takes the result over."""
    name = made.op.name

    def refuse_grad(out: Tensor, given: Sequence[Any]) -> None:
        tensors = (value for value in (out, *map(plain, given)) if isinstance(value, Tensor))
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            raise RuntimeError(f"{name}: out= takes no part in gradients, but an argument requires one; use no_grad()")

    def into(out: Tensor, result: Tensor) -> Tensor:
        if out.shape != result.shape:
            raise ValueError(f"{name}: out has shape {list(out.shape)}, needs {list(result.shape)}")
        if out.dtype != result.dtype:
            raise TypeError(f"{name}: out has type {out.dtype}, needs {result.dtype}")
        if out.device != result.device:
            raise RuntimeError(f"{name}: out is on {out.device}, needs to be on {result.device}")
        return out.copy_(result)

    return refuse_grad, into


def _writer(made: TorchOp, function: Callable[..., Any]) -> Callable[..., Tensor]:
    refuse_grad, into = _out_maker(made)

    def write(out: Tensor, *args: Tensor) -> Tensor:
        refuse_grad(out, args)
        return into(out, function(*args))

    return write


# What the source of a function of tensors alone comes to; formulas mostly are, and compiling costs more than the rest.
# The names are those of the operator's inputs, once they are known, and _op and _call are its own.
_op: Any = None
_call: Any = None
_write: Any = None
_tracing = torch.compiler.is_dynamo_compiling
_same_type = same_type


def _of_one(a: Any, *, out: Tensor | None = None) -> Any:
    if out is not None:
        return _write(out, a)
    if _tracing():
        return _op(a)
    return _call(a)


def _of_two(a: Any, b: Any, *, out: Tensor | None = None) -> Any:
    if out is not None:
        return _write(out, a, b)
    if _tracing():
        a, b = _same_type(a, b)
        return _op(a, b)
    return _call(a, b)


def _of_three(a: Any, b: Any, c: Any, *, out: Tensor | None = None) -> Any:
    if out is not None:
        return _write(out, a, b, c)
    if _tracing():
        a, b, c = _same_type(a, b, c)
        return _op(a, b, c)
    return _call(a, b, c)


_OF_TENSORS = {1: _of_one, 2: _of_two, 3: _of_three}


def _of_tensors(made: TorchOp) -> Callable[..., Any] | None:
    """The public function, where it is one of up to three tensors of one type with one result."""
    op = made.op
    if len(op.params) > 1 and made.alike != [made.tensors]:
        return None
    plain = all(isinstance(p, Input) and not (p.optional or p.list or _is_number(p)) for p in op.params)
    if not plain or len(op.outputs) != 1 or len(op.params) not in _OF_TENSORS or not _has_out(made):
        return None
    params, name = [identifier(p.name) for p in op.params], identifier(op.name)
    code = _OF_TENSORS[len(params)].__code__.replace(co_varnames=(*params, "out"), co_name=name)
    names = {"__builtins__": builtins.__dict__, "_tracing": _tracing, "_same_type": same_type}
    names |= {"_op": made.overload, "_call": made.call}
    function = FunctionType(code, names, name)
    names["_write"] = _writer(made, function)
    function.__qualname__ = name
    function.__kwdefaults__ = {"out": None}
    function.__annotations__ = {**dict.fromkeys(params, Tensor), "out": Tensor | None, "return": Tensor}
    return function


def make_public(made: TorchOp) -> Callable[..., Any]:
    """The public function of an operator."""
    function = _of_tensors(made) or _from_source(made)
    function.__doc__ = _Public(made).doc()
    function.__module__ = "tenon.torch"
    return function


def _from_source(made: TorchOp) -> Callable[..., Any]:
    writer = _Public(made)
    refuse_grad, into = _out_maker(made)
    names = {
        "Tensor": Tensor,
        "Param": Param,
        "Sequence": Sequence,
        "dtype": torch.dtype,
        "torch": torch,
        "_required": REQUIRED,
        "_tracing": _tracing,
        "_same_type": same_type,
        "_op": made.overload,
        "_call": made.call,
        "_select": made.select,
        "_number": _number_maker(made),
        "_refuse_grad": refuse_grad,
        "_into": into,
    }
    function: Callable[..., Any] = compile_source(writer.source(), made.op.name, names)[identifier(made.op.name)]
    return function
