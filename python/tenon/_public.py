"""What the functions that users call, `tn.softmax(x)`, have in common in all frameworks: names, parameters, docstrings,
which outputs they return. What users give for their parameters is in _arguments.py."""

from __future__ import annotations

import inspect
import keyword
import linecache
import string
import sys
import textwrap
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol
from urllib.parse import quote, unquote

import tenon
from tenon._arguments import is_number
from tenon._recent import kept_while_used
from tenon._suggest import hint, missing
from tenon.contract import FLOATS, NUMPY_NAMES, Attr, Input, Operator, Output, fused, table

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


class _Named(type):
    def __repr__(cls) -> str:
        return "<required>"


class REQUIRED(metaclass=_Named):
    """The default of a required parameter that stands behind optional ones. A class: torch.compile knows those."""


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
    use_newest(module)
    if failed is not None:
        raise failed


def use_newest(module: MutableMapping[str, Any]) -> None:
    """A kernel that was defined again with another text is the one that its name means; `defined` finds each."""
    for name, newest in tenon._newest.items():
        if newest in module:
            module.setdefault(f"_defined_{name}", module[name])
            module[name] = module.get(f"_defined_{newest}", module[newest])


def defined(module: Mapping[str, Any], name: str) -> Callable[..., Any]:
    """The function of an operator by its name in the table, whatever users mean by that name now."""
    made: Callable[..., Any] = module.get(f"_defined_{name}", module[name])
    return made


_refused: set[tuple[int, str]] = set()  # by module: operators that it could not make a function of


def join(refresh: Callable[[], None]) -> None:
    """Has `refresh` called when the table has grown. A module that is loaded again takes its own place."""
    others = [other for other in tenon._adapters if other.__module__ != refresh.__module__]
    tenon._adapters[:] = [*others, refresh]


class Fuse(Protocol):
    """The function fuse of a framework's module."""

    def __call__(self, formula: str, fast: bool = False) -> Callable[..., Any]: ...


_FUSE = """A function that computes a formula in one pass over memory{gradient}.

    gate = tn.fuse("silu(x) * y")
    z = gate(x, y)
    norm = tn.fuse("n = x * rsqrt(mean(x * x, -1) + 1e-6); y = n * g")

Names that are not assigned are the inputs, in the order in which they are read. They broadcast as in NumPy and are
passed by position or by name. Names that are assigned and not used again are the outputs.

    + - * / % **   < <= > >= == !=   and or not   a if c else b   where(c, a, b)
    exp log sqrt rsqrt sin cos tanh erf sigmoid softplus relu gelu silu abs sign floor round pow clamp minimum maximum
    sum mean max min var logsumexp    of everything, or along the last dimension with axis=-1
    f16(x) bf16(x) f32(x) i64(x) …    casts
    f(x: T[n, c, *s], b: T[c], eps: float = 1e-5) -> y: T[n, c, *s] : …    with dimensions, attributes, types by name

`tenon help formulas` prints the whole language. A mistake raises ValueError and points at the character. `fast` allows
what may change the last bits, and NaN, infinity and -0.
{updates}
"""


def make_fuse(
    module: str,
    make: Callable[[str, bool], Callable[..., Any]],
    updates: str,
    gradient: str = ", with its gradient",
    as_kept: Callable[[str], str] = str,
) -> Fuse:
    """fuse of a module. `make` makes the function of a formula and is asked once for each text that is in use,
    which `as_kept` may write in another way; `updates` says what a formula does with inputs that it updates."""

    @kept_while_used
    def function(formula: str, fast: bool) -> Callable[..., Any]:
        return _name_formula(make(formula, fast), formula, fast)

    def fuse(formula: str, fast: bool = False) -> Callable[..., Any]:
        formula_operator(formula, fast)  # says what is wrong with it, in the lines as they were written
        return function(as_kept(formula), bool(fast))

    fuse.__module__, fuse.__qualname__ = module, "fuse"
    fuse.__doc__ = _FUSE.format(gradient=gradient, updates=updates)
    return fuse


def formula_operator(formula: str, fast: bool) -> Operator:
    """The operator that a formula is; one without inputs would not know where to run."""
    op = fused(formula, fast)
    if not op.inputs:
        raise ValueError(f"{op.name}: the formula has no inputs")
    return op


# pickle looks functions up by __qualname__, in parts between dots and in ASCII, so that has the text: __getattr__ of a
# framework's module makes the function of it again. Calls cost no more, as they would if an object stood for it. Python
# writes it in messages too, with () behind it.
_BEGIN = "fuse('"
_ENDS = {"')": False, "', fast=True)": True}
_PLAIN = string.punctuation.replace("%", " ")


def _name_formula(function: Callable[..., Any], formula: str, fast: bool) -> Callable[..., Any]:
    """The function of a formula, by a name that `named_formula` knows."""
    end = next(end for end, is_fast in _ENDS.items() if is_fast == fast)
    function.__qualname__ = _BEGIN + quote(formula, _PLAIN).replace(".", "%2E") + end
    return function


def named_formula(
    module: str,
    fuse: Callable[[str, bool], Callable[..., Any]],
    name: str,
    within: Sequence[str] = (),
    peers: Sequence[Any] = (),
) -> Callable[..., Any]:
    """What the module has by a name that it does not have: the function of a formula, or nothing. `within` are names in
    modules of it; `peers` are as for `missing`."""
    for end, fast in _ENDS.items():
        if name.startswith(_BEGIN) and name.endswith(end):
            return fuse(unquote(name[len(_BEGIN) : -len(end)]), fast)
    raise missing(module, name, [*dir(sys.modules[module]), *within], peers)


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


# ---- as text ---------------------------------------------------------------------------------------------------------


def _has_default(param: Input | Attr) -> bool:
    return param.optional or (isinstance(param, Attr) and not param.required)


def _wrapped(text: str, indent: str) -> list[str]:
    """Lines of 100 characters; most need no more than one."""
    if len(text) + len(indent) <= 100:
        return [indent + text]
    return textwrap.wrap(text, 100, initial_indent=indent, subsequent_indent=2 * indent)


def _has_all_axes(param: Input | Attr) -> bool:
    """Axes that are all of them by default: [] in contracts, None elsewhere."""
    return isinstance(param, Attr) and param.kind == "axes" and param.default == []


def given_axes(function: str, name: str, axes: Any) -> Any:
    """What a user gives for axes that are all of them by default, as the contract has it. Elsewhere an empty list means
    none of them, so it is refused."""
    if axes is None:
        return []
    if isinstance(axes, list | tuple) and not axes:
        raise ValueError(f"{function}: {name} is empty, so nothing would be reduced; {name}=None stands for all axes")
    return axes


def one_row(x: Any, axis: int | None) -> Any:
    """What a user gives for the first input of a function that goes along all elements where axis is None."""
    return x.reshape(-1) if axis is None and hasattr(x, "reshape") else x


@dataclass(frozen=True)
class Flag:
    """A parameter that contracts do not have: it chooses another operator of the same parameters."""

    name: str
    default: bool
    other: str  # the operator that it stands for where it is true


@dataclass(frozen=True)
class Spelling:
    """How a framework calls the function of an operator, where people know one of that name from elsewhere. Names in it
    are those of the contract."""

    order: tuple[str, ...] | None = (
        None  # what is taken by position, the rest by keyword. None: all, as in the contract
    )
    names: Mapping[str, str] = field(default_factory=dict)  # what parameters are called
    defaults: Mapping[str, Any] = field(default_factory=dict)
    flag: Flag | None = None  # taken behind what `order` has
    inplace: bool = False  # whether `inplace`, behind all others, has the result written to the first input
    flat: bool = False  # whether axis=None goes along the first input as if it were one row


class Public:
    """The public function of one operator as text: parameters, result, docstring, source.

    A framework derives a class of it that says what things are called there (_frameworks.py).
    """

    module: str
    tensor = "Tensor"
    number = "Tensor | float"  # what an input that may be a plain number may be given as
    dtype = '"{}"'  # a default that is a type, with NumPy's name of it
    spellings: ClassVar[Mapping[str, Spelling]] = {}  # by operator
    hints = False  # whether a keyword that it does not have is told what it may have been meant to be

    def __init__(self, op: Operator, shown: Sequence[int]) -> None:
        refuse_alike(op)
        self.op = op
        self.shown: list[Output] = [op.outputs[i] for i in shown]
        is_in_table = table().get(op.name) is op  # formulas may have any name, and are called as they were written
        self.spelling = self.spellings.get(op.name, Spelling()) if is_in_table else Spelling()
        # Outputs for the gradient are asked for by the gradient, not by users.
        self.hidden = {o.want_attr for o in op.outputs if o.want == "grad"}
        params = [p for p in op.params if p.name not in self.hidden]
        order = self.spelling.order
        self.by_position = params if order is None else [p for name in order for p in params if p.name == name]
        self.by_keyword = [p for p in params if p not in self.by_position]
        self.params = [*self.by_position, *self.by_keyword]
        first = next((i for i, p in enumerate(self.by_position) if self.has_default(p)), len(self.by_position))
        self.late = [p for p in self.by_position[first:] if not self.has_default(p)]  # required, behind optional ones

    def takes_number(self, param: Input) -> bool:
        """Whether a plain number may stand for an input."""
        return is_number(param)

    def name_of(self, param: Input | Attr) -> str:
        """What the function calls a parameter."""
        return identifier(self.spelling.names.get(param.name, param.name))

    def has_default(self, param: Input | Attr) -> bool:
        return param.name in self.spelling.defaults or _has_default(param)

    def keywords(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by the contract's names as keywords of this function, so that it means this operator."""
        named = {self.name_of(p): given[p.name] for p in self.params if p.name in given}
        for param in self.params:
            if isinstance(param, Attr) and param.name in self.spelling.defaults:
                value = given.get(param.name, param.default)
                named[self.name_of(param)] = None if value == [] and _has_all_axes(param) else value
        flag = self.spelling.flag
        return named if flag is None else named | {flag.name: False}

    def default(self, param: Input | Attr) -> str:
        """The default of a parameter as source."""
        value = param.default if isinstance(param, Attr) else None
        if param.name in self.spelling.defaults:
            return repr(self.spelling.defaults[param.name])
        if isinstance(param, Attr) and param.kind == "dtype" and value:
            return self.dtype.format(NUMPY_NAMES[value])
        if isinstance(value, str):
            return f'"{value}"'
        return repr(tuple(value) if isinstance(value, list) else value)

    def _annotation(self, param: Input | Attr) -> str:
        if isinstance(param, Attr):
            kind = _ANNOTATIONS[param.kind]
        elif param.list:
            kind = f"Sequence[{self.tensor}]"
        else:
            kind = self.number if self.takes_number(param) else self.tensor
        is_none = param.optional or (self.has_default(param) and self.default(param) == "None")
        return f"{kind} | None" if is_none else kind

    def _parameter(self, param: Input | Attr) -> str:
        default = f" = {self.default(param)}" if self.has_default(param) else " = _required" * (param in self.late)
        return f"{self.name_of(param)}: {self._annotation(param)}{default}"

    def keyword_parameters(self) -> list[str]:
        """Those that are taken by keyword only."""
        return [self._parameter(p) for p in self.by_keyword]

    def parameters(self) -> list[str]:
        """The parameters with annotations and defaults; the name _required is the default of late ones."""
        flag, keywords = self.spelling.flag, self.keyword_parameters()
        flags = [] if flag is None else [f"{flag.name}: bool = {flag.default}"]
        flags += ["inplace: bool = False"] if self.spelling.inplace else []
        return [*(self._parameter(p) for p in self.by_position), *flags, *(["*"] if keywords else []), *keywords]

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
        for name in map(self.name_of, self.late):
            message = f"{self.op.name}() missing 1 required argument: '{name}'"
            lines += [f"if {name} is _required:", f"    raise TypeError({message!r})"]
        return lines

    # ---- source

    def value(self, param: Input | Attr) -> str:
        """The source of what a parameter is to the contract."""
        name = self.name_of(param)
        if self.spelling.flat and param is self.op.params[0]:
            return f"_one_row({name}, axis)"
        if self.spelling.flat and param.name == "axis":
            return "(-1 if axis is None else axis)"
        is_axes = _has_all_axes(param) and param.name in self.spelling.defaults
        return f"_given_axes({self.op.name!r}, {name!r}, {name})" if is_axes else name

    def callee(self) -> str:
        """The source of what is called with the arguments: `_call`, or `_other` where a flag says so."""
        flag = self.spelling.flag
        return "_call" if flag is None else f"(_other if {flag.name} else _call)"

    def body(self) -> list[str]:
        """The lines of the function: arguments go to `_call` by name."""
        arguments = ", ".join(f"{p.name!r}: {self.value(p)}" for p in self.params)
        return [*self.refuse_missing(), f"return {self.callee()}({{{arguments}}})"]

    def source(self) -> str:
        more, check = (["**_more: Any"], ["if _more:", "    _refuse(_more)"]) if self.hints else ([], [])
        head = f"def {identifier(self.op.name)}({', '.join([*self.parameters(), *more])}) -> {self.returns()}:"
        return "\n".join([head, *(f"    {line}" for line in [*check, *self.body()]), ""])

    def _refuse(self, given: Mapping[str, Any]) -> None:
        """Raises for keywords that the function does not have."""
        name = next(iter(given))
        known = [*map(self.name_of, self.params), *([self.spelling.flag.name] if self.spelling.flag else [])]
        function = identifier(self.op.name)
        raise TypeError(f"{function}() got an unexpected keyword argument '{name}'{hint(name, known)}")

    def compiled(self, names: Mapping[str, Any]) -> Callable[..., Any]:
        """The function; `names` are what its source and its annotations mention."""
        own = {"_required": REQUIRED, "_given_axes": given_axes, "_one_row": one_row, "_refuse": self._refuse}
        names = {"Any": Any, "Sequence": Sequence, **own, **names}
        function = compile_source(self.source(), self.op.name, names)[identifier(self.op.name)]
        if self.hints:
            shown = inspect.signature(function)
            parameters = [p for p in shown.parameters.values() if p.kind != p.VAR_KEYWORD]
            function.__signature__ = shown.replace(parameters=parameters)
        return self.finished(function)

    def finished(self, function: Callable[..., Any]) -> Callable[..., Any]:
        function.__doc__ = self.doc()
        function.__module__ = self.module
        return function

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
        if self.spelling.flag is not None:
            lines.append(f"With {self.spelling.flag.name}=True it is {self.spelling.flag.other}.")
        if self.spelling.inplace:
            lines.append(f"With inplace=True it is written to {self.name_of(self.params[0])}.")
        if self.spelling.names:
            renamed = [p for p in self.params if p.name in self.spelling.names]
            lines.append(f"In the contract, {', '.join(f'{self.name_of(p)} is {p.name}' for p in renamed)}.")
        if self.op.grad is None or (self.op.mutates and self.op.grad == "derived"):  # nothing is derived of an update
            lines += self.no_gradient()
        return lines

    def no_gradient(self) -> list[str]:
        """What to know of an operator without a gradient."""
        return ["It has no gradient: differentiating through it raises NotImplementedError."]

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


class Writing(Public):
    """Where tensors are written to: what a contract updates, and `out=`, which takes the result if it is a single
    one. `written` says what is to be known of that."""

    written = "With out=tensor the result is written there."

    def __init__(self, op: Operator, shown: Sequence[int]) -> None:
        super().__init__(op, shown)
        single = list(shown) == [0] and op.outputs[0].want == "always"
        self.has_out = single and not op.mutates and all(p.name != "out" for p in op.params)
        # All parameters by position, as the operator takes them.
        self.arguments = ["False" if p.name in self.hidden else self.value(p) for p in op.params]

    def keyword_parameters(self) -> list[str]:
        out = [f"out: {self.tensor} | None = None"] if self.has_out else []
        return [*super().keyword_parameters(), *out]

    def notes(self) -> list[str]:
        return [*([self.written] if self.has_out else []), *super().notes()]
