"""What the functions that users call, `tn.softmax(x)`, have in common in all frameworks: names, parameters, docstrings,
which outputs they return."""

from __future__ import annotations

import keyword
import linecache
import operator
import string
import textwrap
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any
from urllib.parse import quote, unquote

from tenon.contract import FLOATS, Attr, Input, Operand, Operator, Output, fused, table
from tenon.infer import Types

_ANNOTATIONS = {
    "int": "int",
    "axis": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "choice": "str",
    "activation": "str",
    "dtype": "dtype",
    "ints": "Sequence[int]",
    "axes": "int | Sequence[int]",
}


_WIDTH = 120  # of a line of source


class _Required:
    """The default of a required parameter that stands behind optional ones."""

    def __repr__(self) -> str:
        return "<required>"


REQUIRED = _Required()


_OWN = {"ctx", "isinstance", "tuple", "Tensor", "TypeError", "NotImplementedError"}  # what generated code uses


def identifier(name: str) -> str:
    """A contract's name as Python may write it; generated code has names of its own, with a leading underscore too."""
    return f"{name}_" if keyword.iskeyword(name) or name in _OWN or name.startswith("_") else name


def compile_source(source: str, title: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Runs generated source; tracebacks show its lines."""
    filename = f"<tenon {title}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace = dict(names)
    exec(compile(source, filename, "exec", dont_inherit=True), namespace)
    return namespace


def refuse_taken(module: MutableMapping[str, Any], name: str) -> None:
    """The operators of a plugin may be called anything, but not as something else that users need."""
    if name in module:
        raise ValueError(f"{name}: {module['__name__']} has something else of this name; call the operator otherwise")


def refuse_alike(op: Operator) -> None:
    """Two parameters may be called otherwise in a contract and alike in Python."""
    names: dict[str, str] = {}
    for param in op.params:
        python = identifier(param.name)
        other = names.setdefault(python, param.name)
        if other != param.name:
            raise ValueError(f"{op.name}: {other} and {param.name} are both {python} in Python; call one otherwise")


def add_functions(
    module: MutableMapping[str, Any], names: MutableSequence[str], make: Callable[[Operator], Callable[..., Any]]
) -> None:
    """Makes the functions of operators that are new in the table; `names` are those that the module has. One that
    cannot have one is told of once, when all others have theirs."""
    failed: Exception | None = None
    for op in table().values():
        name = identifier(op.name)
        if name in names or (id(module), name) in _refused:
            continue
        try:
            refuse_taken(module, name)
            made = make(op)
        except Exception as error:
            _refused.add((id(module), name))
            failed = failed or error
            continue
        module[name] = made
        names.append(name)
    if failed is not None:
        raise failed


_refused: set[tuple[int, str]] = set()  # by module: operators that it could not make a function of


def formula_operator(formula: str, fast: bool) -> Operator:
    """The operator that a formula is; one without inputs would not know where to run."""
    op = fused(formula, fast)
    if not op.inputs:
        raise ValueError(f"{op.name}: the formula has no inputs")
    return op


# pickle looks functions up by __qualname__, in parts between dots and in ASCII, so that has the text: __getattr__ of a
# framework's module makes the function of it again. Calls cost no more, as they would if an object stood for it.
_EXACT, _FAST = "fuse: ", "fast fuse: "
_PLAIN = string.punctuation.replace("%", " ")


def name_formula(function: Callable[..., Any], formula: str, fast: bool) -> Callable[..., Any]:
    """The function of a formula, by a name that `named_formula` knows."""
    function.__qualname__ = (_FAST if fast else _EXACT) + quote(formula, _PLAIN).replace(".", "%2E")
    return function


def named_formula(module: str, fuse: Callable[[str, bool], Callable[..., Any]], name: str) -> Callable[..., Any]:
    """What the module has by a name that it does not have: the function of a formula, or nothing."""
    for prefix, fast in ((_EXACT, False), (_FAST, True)):
        if name.startswith(prefix):
            return fuse(unquote(name.removeprefix(prefix)), fast)
    raise AttributeError(f"module '{module}' has no attribute '{name}'")


def shown_outputs(op: Operator) -> list[int]:
    """What the public function returns: the first output, and all further ones but statistics.

    A floating-point output behind the first through which no gradient flows (its d<name> is in no rule) is kept for the
    backward pass, like the mean and rstd of a normalisation: users do not see it. Neither do they see outputs that
    exist for the gradient (`?grad`).
    """

    def is_shown(i: int) -> bool:
        output = op.outputs[i]
        if i == 0 or op.rule is None or output.name in op.rule.differentiable:
            return output.want != "grad"
        kinds = output.type.get("fixed")
        return output.want != "grad" and kinds is not None and not FLOATS & set(kinds)

    return [i for i in range(len(op.outputs)) if is_shown(i)]


def drop_absent(outputs: Any) -> Any:
    """Outputs that were not asked for are left out; a single one stands alone."""
    if not isinstance(outputs, tuple):
        return outputs
    present = tuple(o for o in outputs if o is not None)
    return present[0] if len(present) == 1 else present


# ---- inputs ----------------------------------------------------------------------------------------------------------


def is_number(param: Input | Attr) -> bool:
    """A 0-dim input, which may be given as a plain number."""
    return isinstance(param, Input) and param.shape == [] and not param.list and not param.inplace


def is_told(op: Operator, param: Input) -> bool:
    """Whether the others say which type a 0-dim input has, so that what NumPy made of a number need not fit."""
    others = {p.type.get("var") for p in op.inputs if not (p.optional or is_number(p))}
    return param.type.get("var") in {None, *others}


def number_type(
    op: Operator, param: Input, given: Sequence[tuple[Input, Sequence[Operand]]], attrs: Mapping[str, Any]
) -> str:
    """The element type that a plain number for `param` gets in a call with the tensors `given`."""
    types = Types(op, attrs)
    types.bind(given)
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


# ---- attributes ------------------------------------------------------------------------------------------------------

NEEDS = {
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


def listed(op: Operator, param: Input, value: Any, of: str) -> Sequence[Any]:
    """What a user gives for a list of tensors: an array is one as well, of its rows, and nobody means that."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"{op.name}: {param.name} must be a list of {of}, not {type(value).__name__}")
    return value


def refuse_none(op: Operator, attr: Attr) -> None:
    """None is no way to ask for a default, which may be something else than what None says elsewhere."""
    if not attr.optional and not attr.required:
        raise TypeError(f"{op.name}: {attr.name} is None, and cannot be left out so")


def listed_axes(attr: Attr, value: Any) -> Any:
    """What a user gives for an attribute; a single axis stands for a list of it."""
    single = hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0
    return [value] if attr.kind == "axes" and single else value


def int64(value: Any) -> int:
    """An integer as the C library has them; OverflowError where it needs more than 64 bits."""
    made = operator.index(value)
    if not -(1 << 63) <= made < 1 << 63:
        raise OverflowError
    return made


def beyond(op: Operator, attr: Attr, value: Any) -> ValueError:
    return ValueError(f"{op.name}: {attr.name} is {value!r}, beyond 64 bits")


def attribute_value(op: Operator, attr: Attr, value: Any, dtype_name: Callable[[Any], str | None]) -> Any:
    """What a user gives for an attribute, as contracts have it. `dtype_name`: Tenon's name of a framework's type."""
    if value is None:
        refuse_none(op, attr)
        return None
    try:
        if isinstance(value, str) and attr.kind != "dtype":
            if attr.kind in ("str", "choice", "activation"):
                return value
            raise TypeError
        if attr.kind in ("int", "axis"):
            return int64(value)
        if attr.kind in ("axes", "ints"):
            return [int64(v) for v in value]
        if attr.kind == "float":
            return float(value)
        if attr.kind == "bool":
            return bool(value)
        name = dtype_name(value) if attr.kind == "dtype" else None
    except OverflowError:
        raise beyond(op, attr, value) from None
    except (TypeError, ValueError, RuntimeError):  # the last is torch's, of a tensor with many elements
        name = None
    if name is None:
        raise TypeError(f"{op.name}: {attr.name} is {value!r}, needs {NEEDS[attr.kind]}")
    return name


# ---- as text ---------------------------------------------------------------------------------------------------------


def _has_default(param: Input | Attr) -> bool:
    return param.optional or (isinstance(param, Attr) and not param.required)


def _wrapped(text: str, indent: str) -> list[str]:
    """Lines of 100 characters; most need no more than one."""
    if len(text) + len(indent) <= 100:
        return [indent + text]
    return textwrap.wrap(text, 100, initial_indent=indent, subsequent_indent=2 * indent)


class Public:
    """The public function of one operator as text: parameters, result, docstring.

    A framework derives a class of it that says what things are called there.
    """

    tensor = "Tensor"
    number = "Tensor | float"  # what a 0-dim input may be given as

    def __init__(self, op: Operator, shown: Sequence[int]) -> None:
        refuse_alike(op)
        self.op = op
        self.shown: list[Output] = [op.outputs[i] for i in shown]
        # Outputs for the gradient are asked for by the gradient, not by users.
        self.hidden = {o.want_attr for o in op.outputs if o.want == "grad"}
        self.params = [p for p in op.params if p.name not in self.hidden]
        first = next((i for i, p in enumerate(self.params) if _has_default(p)), len(self.params))
        self.late = [p for p in self.params[first:] if not _has_default(p)]  # required, behind optional ones

    def default(self, param: Input | Attr) -> str:
        """The default of a parameter as source."""
        value = param.default if isinstance(param, Attr) else None
        if isinstance(value, str):
            return f'"{value}"'
        return repr(tuple(value) if isinstance(value, list) else value)

    def _annotation(self, param: Input | Attr) -> str:
        if isinstance(param, Attr):
            kind = _ANNOTATIONS[param.kind]
        elif param.list:
            kind = f"Sequence[{self.tensor}]"
        else:
            kind = self.number if is_number(param) else self.tensor
        return f"{kind} | None" if param.optional else kind

    def parameters(self) -> list[str]:
        """The parameters with annotations and defaults; the name _required is the default of late ones."""
        parts = []
        for param in self.params:
            default = f" = {self.default(param)}" if _has_default(param) else " = _required" * (param in self.late)
            parts.append(f"{identifier(param.name)}: {self._annotation(param)}{default}")
        return parts

    def returns(self) -> str:
        """The annotation of the result."""
        if not self.shown:
            return "None"
        asked = any(o.want == "asked" for o in self.shown)
        several = f"tuple[{self.tensor}, ...]"
        returns = self.tensor if len(self.shown) == 1 else several
        return f"{self.tensor} | {several}" if asked else returns

    def refuse_missing(self) -> list[str]:
        """Source that raises where a late parameter was not given."""
        lines = []
        for name in (identifier(p.name) for p in self.late):
            message = f"{self.op.name}() missing 1 required argument: '{name}'"
            lines += [f"if {name} is _required:", f"    raise TypeError({message!r})"]
        return lines

    # ---- docstring

    def results(self) -> str:
        """What a call does and returns."""
        written = [p.name for p in self.op.inputs if p.inplace]
        updates = [f"Updates {', '.join(written)} in place."] if written else []
        returns = [f"Returns {', '.join(o.name for o in self.shown)}."] if self.shown else []
        return " ".join([*updates, *returns])

    def notes(self) -> list[str]:
        """What else there is to say, a line each."""
        asked = [o.name for o in self.op.outputs if o.want == "asked"]
        lines = [f"Only when asked for (want_<name>=True): {', '.join(asked)}."] if asked else []
        if self.op.grad is None or (self.op.mutates and self.op.grad == "derived"):  # nothing is derived of an update
            lines.append(self.no_gradient())
        return lines

    def no_gradient(self) -> str:
        """What to know of an operator without a gradient."""
        return "It has no gradient: differentiating through it raises NotImplementedError."

    def doc(self) -> str:
        lines = [*_wrapped(self.op.doc, ""), "", "Contract:", *_wrapped(self.op.signature, "    ")]
        return "\n".join([*lines, "", self.results(), *self.notes()])

    def stub(self) -> str:
        """The function as type checkers and editors read it."""
        parts = [part.replace("= _required", "= ...") for part in self.parameters()]
        head, tail = f"def {identifier(self.op.name)}(", f") -> {self.returns()}:"
        if len(head + ", ".join(parts) + tail) > _WIDTH:
            inner = f"    {', '.join(parts)}\n"
            parts = [inner if len(inner) <= _WIDTH + 1 else "".join(f"    {part},\n" for part in parts)]
            head += "\n"
        doc = textwrap.indent(self.doc(), "    ").strip()
        return f'{head}{", ".join(parts)}{tail}\n    """{doc}\n    """\n'


class Returning(Public):
    """Where tensors are never written to: what a contract updates is returned. `written` says so."""

    written = ": no tensor is written to"

    def __init__(self, op: Operator, shown: Sequence[int]) -> None:
        super().__init__(op, shown)
        self.updated = [p for p in op.inputs if p.inplace]

    def returns(self) -> str:
        if not self.updated:
            return super().returns()
        if len(self.shown) + len(self.updated) > 1:
            return "tuple[Any, ...]" if any(p.list for p in self.updated) else f"tuple[{self.tensor}, ...]"
        return f"list[{self.tensor}]" if self.updated[0].list else self.tensor

    def results(self) -> str:
        if not self.updated:
            return super().results()
        names = ", ".join([*(o.name for o in self.shown), *(p.name for p in self.updated)])
        absent = " One that was not given is left out." if any(p.optional for p in self.updated) else ""
        return f"Returns {names}, as updated{self.written}.{absent}"

    def source(self) -> str:
        """The function: `_call` gets its arguments by name."""
        arguments = ", ".join(f"{p.name!r}: {identifier(p.name)}" for p in self.params)
        body = [*self.refuse_missing(), f"return _call({{{arguments}}})"]
        head = f"def {identifier(self.op.name)}({', '.join(self.parameters())}) -> {self.returns()}:"
        return "\n".join([head, *(f"    {line}" for line in body), ""])
