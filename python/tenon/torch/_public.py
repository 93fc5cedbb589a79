"""The functions that users call: `tn.softmax(x)`. They are written out as source, so that a call costs no more than a
hand-written function would, torch.compile can look inside, and help() and editors see a real signature."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

from tenon._arguments import check_number, is_number, number_type
from tenon._frameworks import TorchFunction
from tenon._public import REQUIRED, compile_source, identifier
from tenon.contract import Attr, Input
from tenon.torch._ops import TorchOp, filled, register_all, same_type
from tenon.torch._param import Param, plain
from tenon.torch._types import DTYPES, NAMES, operand

# The functions of the operators by name, with the parameters of their contracts by torch's names. Those that
# _functional.py has another of, with torch's parameters in torch's order, are shown to users as that.
functions: dict[str, Callable[..., Any]] = {}


class _Writer(TorchFunction):
    """Writes the public function of one operator."""

    def __init__(self, made: TorchOp, words: Mapping[str, str] | None = None) -> None:
        super().__init__(made.op, made.shown)
        self.made = made
        self.words = self.spelling.names if words is None else words  # what messages say for names of the contract

    def prepared(self) -> list[str]:
        """What is done to arguments before the call."""
        lines = self.refuse_missing()
        for param in self.params:
            name = self.name_of(param)
            if isinstance(param, Attr) and param.kind == "axes":
                lines += [f"if isinstance({name}, int):", f"    {name} = [{name}]"]
            if is_number(param):
                given = ", ".join(f"{p.name!r}: {self.name_of(p)}" for p in self.params)
                absent = f"{name} is not None and " if param.optional else ""
                lines += [f"if {absent}not isinstance({name}, Tensor):"]
                lines += [f"    {name} = _number({param.name!r}, {name}, {{{given}}})"]
        return lines

    def body(self) -> list[str]:
        names = ", ".join(self.name_of(p) for p in self.params)
        inplace = ["if inplace:", f"    return _in_place({names})"] if self.spelling.inplace else []
        out = ["if out is not None:", f"    return _write(out, {names})"] if self.has_out else []
        arguments = ", ".join(self.arguments)
        traced = f"_select(_op({arguments}))"
        if len(self.op.outputs) == 1:
            traced = f"_op({arguments})"
        elif len(self.shown) == 1:
            traced = f"_op({arguments})[{self.made.shown[0]}]"
        groups = [", ".join(self.name_of(self.op.params[i]) for i in places) for places in self.made.alike]
        promoted = [f"    {group} = _same_type({group})" for group in groups]
        tail = [
            "if _tracing():",
            *promoted,
            f"    return {traced}",
            *self.in_callers_words(f"return _call({arguments})"),
        ]
        return [*inplace, *out, *self.prepared(), *tail]

    def in_callers_words(self, line: str) -> list[str]:
        """A line, with what it raises in the words of the function; a `try` costs nothing where nothing is raised."""
        if not self.words:
            return [line]
        return ["try:", f"    {line}", "except Exception as error:", "    _reword(error)", "    raise"]

    def writing_source(self) -> str:
        """The same call with a tensor for the result."""
        names = [self.name_of(p) for p in self.params]
        lines = [*self.prepared(), *self.in_callers_words(f"return _call_into({', '.join(self.arguments)}, out)")]
        return "\n".join([f"def _writing(out, {', '.join(names)}):", *(f"    {line}" for line in lines), ""])


def _rewording(words: Mapping[str, str]) -> Callable[[Exception], None]:
    """Puts an error's message in other words. The library and TorchOp know the names of the contract alone. What stands
    in quotes is the caller's."""

    def reword(error: Exception) -> None:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            names = rf"'[^']*'|\b({'|'.join(words)})\b"
            error.args = (re.sub(names, lambda found: words.get(found[0], found[0]), error.args[0]),)

    return reword


def in_place(function: Callable[..., Tensor], input: Tensor, *args: Any) -> Tensor:
    """A function of one tensor whose result goes to that tensor. What is differentiated through needs the input as it
    was: it is copied."""
    if torch.is_grad_enabled() and input.requires_grad:
        return input.copy_(function(input.clone(), *args))
    return function(input, *args, out=input)


def _inplace_caller(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What `inplace=True` does."""

    def call(input: Tensor, *args: Any) -> Tensor:
        if has_torch_function_unary(input):  # such as what torch.fx traces with: that sees the function
            result: Tensor = handle_torch_function(function, (input,), input, *args, True)
            return result
        return in_place(function, input, *args)

    return call


_SIMPLE = (int, float, torch.SymInt, torch.SymFloat)


def _number_maker(made: TorchOp) -> Callable[..., Tensor]:
    """Plain numbers for 0-dim inputs become tensors of the type that the contract says, where the others are."""

    def number(name: str, value: float | Param, given: dict[str, Any]) -> Tensor:
        if isinstance(value, Param):
            return value.tensor
        simple = isinstance(value, _SIMPLE)  # all that can be asked about a symbolic number
        if not simple and hasattr(value, "__torch_function__"):  # such as what torch.fx traces with
            return value  # type: ignore[return-value]
        if not simple and not hasattr(value, "__float__") and not hasattr(value, "__index__"):
            what = "None" if value is None else type(value).__name__
            raise TypeError(f"{made.op.name}: {name} must be a number or a tensor without dimensions, not {what}")
        lists = {n: v if isinstance(v, list | tuple) else [plain(v)] for n, v in given.items()}
        tensors = {n: [t for t in values if isinstance(t, Tensor)] for n, values in lists.items()}
        device = next((t.device for values in tensors.values() for t in values), torch.device("cpu"))
        param = next(p for p in made.op.inputs if p.name == name)
        operands = [(p, [operand(t) for t in tensors[p.name]]) for p in made.op.inputs]
        kind = number_type(made.op, param, operands, given, NAMES.get)
        if isinstance(value, int | float) and not torch.compiler.is_dynamo_compiling():
            check_number(made.op, param, value, kind)
        if simple:
            return filled(value, DTYPES[kind], device)
        return torch.tensor(value, dtype=DTYPES[kind], device=device)

    return number


def _writer(writer: _Writer, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """What `out=` does: calls that need a gradient are refused, as torch's functions do. The result goes to the tensor
    at once where that is laid out as a result would be, else it is copied there."""
    name = writer.words.get(writer.op.name, writer.op.name)

    def refuse_grad(tensors: Sequence[Any]) -> None:
        if not isinstance(tensors[0], Tensor):
            raise TypeError(f"{name}: out must be a tensor, not {type(tensors[0]).__name__}")
        if torch.is_grad_enabled() and any(t.requires_grad for t in map(plain, tensors) if isinstance(t, Tensor)):
            raise RuntimeError(f"{name}: out= takes no part in gradients, but an argument requires one; use no_grad()")

    def copied(out: Tensor, result: Tensor) -> Tensor:
        if out.shape != result.shape:
            raise ValueError(f"{name}: out has shape {list(out.shape)}, needs {list(result.shape)}")
        if out.dtype != result.dtype:
            raise TypeError(f"{name}: out has type {out.dtype}, needs {result.dtype}")
        if out.device != result.device:
            raise RuntimeError(f"{name}: out is on {out.device}, needs to be on {result.device}")
        return out.copy_(result)

    writing: Callable[..., Any] | None = None

    def write(out: Tensor, *args: Any) -> Tensor:
        nonlocal writing
        refuse_grad((out, *args))
        if _tracing():
            return copied(out, function(*args))
        if writing is None:
            writing = compile_source(writer.writing_source(), f"{name}, out=", _names(writer))["_writing"]
        result = writing(out, *args)
        return out if result is out else copied(out, result)

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


def _of_tensors(writer: _Writer) -> Callable[..., Any] | None:
    """The public function, where it is one of up to three tensors of one type with one result."""
    made, op = writer.made, writer.op
    if writer.words or (len(op.params) > 1 and made.alike != [made.tensors]):
        return None
    plain = all(isinstance(p, Input) and not (p.optional or p.list or is_number(p)) for p in op.params)
    if not plain or len(op.outputs) != 1 or len(op.params) not in _OF_TENSORS or not writer.has_out:
        return None
    params, name = [identifier(p.name) for p in op.params], identifier(op.name)
    code = _OF_TENSORS[len(params)].__code__.replace(co_varnames=(*params, "out"), co_name=name)
    names = {"__builtins__": builtins.__dict__, "_tracing": _tracing, "_same_type": same_type}
    names |= {"_op": made.overload, "_call": made.call}
    function = FunctionType(code, names, name)
    names["_write"] = _writer(writer, function)
    function.__qualname__ = name
    function.__kwdefaults__ = {"out": None}
    function.__annotations__ = {**dict.fromkeys(params, Tensor), "out": Tensor | None, "return": Tensor}
    return function


def make_public(made: TorchOp, words: Mapping[str, str] | None = None) -> Callable[..., Any]:
    """The public function of an operator; `words` are what its messages say for names of the contract, where that is
    not what its parameters are called."""
    writer = _Writer(made, words)
    return writer.finished(_of_tensors(writer) or _from_source(writer))


def _names(writer: _Writer) -> dict[str, Any]:
    """What the source of a function is written in terms of."""
    made = writer.made
    return {
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
        "_call_into": made.call_into,
        "_select": made.select,
        "_number": _number_maker(made),
        "_reword": _rewording(writer.words),
    }


def _from_source(writer: _Writer) -> Callable[..., Any]:
    namespace = compile_source(writer.source(), writer.op.name, _names(writer))
    function: Callable[..., Any] = namespace[identifier(writer.op.name)]
    namespace["_write"] = _writer(writer, function)
    namespace["_in_place"] = _inplace_caller(function)
    return function


def add_new() -> list[str]:
    """Makes the functions of operators that are new in the table; their names."""
    new = {identifier(made.op.name): make_public(made) for made in register_all()}
    functions.update(new)
    return list(new)
