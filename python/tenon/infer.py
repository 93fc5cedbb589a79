"""Types and shapes of an operator's outputs, from its contract.

The C library does the same on 64-bit integers; this does it on whatever counts as an integer, so that frameworks can
trace with symbolic sizes. Nothing but arithmetic and comparisons is done with sizes, and a comparison that must hold
goes through `require`, which a framework may turn into a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from tenon.contract import Argument, Attr, Input, Json, Operand, Operator, Output, Shape

Require = Callable[[Any, str], None]

# What each type accumulates in, where that is not the type itself; its complex type.
_ACC = {"f16": "f32", "bf16": "f32", "e4m3": "f32", "e5m2": "f32", "i8": "i32"}
_ACC |= dict.fromkeys(("i16", "i32", "i64", "u8", "u16", "u32", "bool"), "i64")
_COMPLEX = {"f32": "c64", "f64": "c128"}

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "neg": lambda a: -a,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "not": lambda a: not a,
}


def raise_unless(condition: Any, message: str) -> None:
    """The plain `require`."""
    if not condition:
        raise ValueError(message)


def _word(value: str | bool | float) -> str:
    return repr(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


class _Unset(Exception):
    """An expression uses something that nothing in the call has set (yet)."""


@dataclass
class _Scope:
    """Dimensions and packs that have a value; each element of lists has a scope of its own inside the call's."""

    dims: dict[str, int] = field(default_factory=dict)
    packs: dict[str, Shape] = field(default_factory=dict)
    outer: _Scope | None = None

    def dim(self, name: str) -> int:
        return self._home(name, "dims").dims[name]

    def pack(self, name: str) -> Shape:
        return self._home(name, "packs").packs[name]

    def has_dim(self, name: str) -> bool:
        return name in self.dims or (self.outer is not None and self.outer.has_dim(name))

    def has_pack(self, name: str) -> bool:
        return name in self.packs or (self.outer is not None and self.outer.has_pack(name))

    def _home(self, name: str, kind: str) -> _Scope:
        if name in getattr(self, kind):
            return self
        if self.outer is None:
            raise _Unset
        return self.outer._home(name, kind)


class Types:
    """What the type variables of a call are."""

    def __init__(self, op: Operator, attrs: Mapping[str, Any]) -> None:
        self.op = op
        self.attrs = attrs
        self.bound: dict[str, str] = {}
        self.source: dict[str, str] = {}  # the input that told

    def bind(self, given: Sequence[tuple[Input, Sequence[Operand]]]) -> None:
        """Compares the inputs' types with the contract's."""
        for wrapped in (False, True):  # T before acc(T): a plain use tells more
            for param, operands in given:
                if bool(param.type.get("wrap")) is wrapped:
                    for k, (kind, _) in enumerate(operands):
                        self._match(param, f"{param.name}[{k}]" if len(operands) > 1 else param.name, kind)

    def _match(self, param: Input, name: str, kind: str) -> None:
        var = param.type.get("var")
        if var is not None and var not in self.bound:
            may_be = [t for t in self.op.types[var] if _wrapped(t, param.type) == kind]
            if not may_be:
                needs = dict.fromkeys(_wrapped(t, param.type) for t in self.op.types[var])
                raise TypeError(f"{self.op.name}: {name} has type {kind}, needs {_one_of(list(needs))}")
            self.bound[var] = kind if kind in may_be else may_be[0]
            self.source[var] = name
            return
        wanted = param.type.get("fixed") or (self.of(param.type),)
        if kind not in wanted:
            why = f": {var} is {self.bound[var]} from {self.source[var]}" if var in self.source else ""
            raise TypeError(f"{self.op.name}: {name} has type {kind}, needs {_one_of(wanted)}{why}")

    def of(self, type_: Json) -> str:
        """What a type of the contract is in this call."""
        if "var" in type_:
            kind = self.bound.get(type_["var"]) or self.bound.get("T")
            if kind is None:
                raise TypeError(f"{self.op.name}: nothing says what type {type_['var']} is")
        else:
            kind = self.attrs[type_["attr"]] if "attr" in type_ else type_["fixed"][0]
            if kind is None:
                raise ValueError(f"{self.op.name}: {type_['attr']} is missing; it needs a type")
        return _wrapped(str(kind), type_)


class Binding:
    """One call, checked against an operator's contract."""

    def __init__(
        self,
        op: Operator,
        inputs: Sequence[Argument],
        attrs: Mapping[str, Any],
        require: Require = raise_unless,
        is_one: Callable[[Any], bool] = lambda size: bool(size == 1),
    ) -> None:
        self.op = op
        self.require = require
        self.is_one = is_one  # whether a size is 1 and so broadcasts
        self.scope = _Scope()
        self.elements: list[_Scope] = []
        self.source: dict[str, str] = {}  # who told a pack or a dimension: "*s", "n"
        self.soft: set[str] = set()  # packs and dimensions that only broadcasting inputs have set: "*s", "n"
        given = [(p, _operands(p, a, op)) for p, a in zip(op.inputs, inputs, strict=True)]
        self.first = given[0][1][0] if given and given[0][1] else None
        self.attrs = self._complete(attrs)
        self.shared = _shared_names(op)
        self.types = Types(op, self.attrs)
        self.types.bind(given)
        self._bind_shapes(given)
        for attr in op.attrs:
            self._known({"attr": attr.name}, self.scope)  # axes are checked
        for text, expr in op.where:
            value = self._known(expr, self.scope)
            if value is not None:
                self.require(value, f"{op.name}: needs {text}{self._but(expr)}")

    def outputs(self) -> list[Operand | None]:
        """Type and shape of each output; None where it was not asked for."""
        return [self._output(o) for o in self.op.outputs]

    def _output(self, output: Output) -> Operand | None:
        if output.want_attr is not None and not self.attrs[output.want_attr]:
            return None
        if output.list:
            raise NotImplementedError(f"{self.op.name}: {output.name} is a list of outputs")
        try:
            dims = tuple(d for item in self._items(output.shape, self.scope) for d in self._dims(item, self.scope))
        except _Unset:
            raise ValueError(f"{self.op.name}: the shape of {output.name} cannot be told from this call") from None
        for size in dims:
            self.require(size >= 0, f"{self.op.name}: {output.name} would have a size of {size}")
        return self.types.of(output.type), dims

    # ---- attributes

    def _complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for attr in self.op.attrs:
            value = given.get(attr.name, attr.default)
            if attr.required and attr.name not in given:
                raise TypeError(f"{self.op.name}: {attr.name} is missing")
            if attr.choices and value not in attr.choices:
                raise ValueError(f"{self.op.name}: {attr.name} is {value!r}, needs one of {', '.join(attr.choices)}")
            if attr.length is not None and value is not None and len(value) != attr.length:
                raise ValueError(f"{self.op.name}: {attr.name} has {len(value)} elements, needs {attr.length}")
            values[attr.name] = value
        for name in given:
            if name not in values:
                raise TypeError(f"{self.op.name}: there is no attribute '{name}'")
        return values

    def _attr(self, name: str) -> Any:
        """The value as kernels see it: axes non-negative and sorted, [] all of them."""
        attr = next(a for a in self.op.attrs if a.name == name)
        value = self.attrs[name]
        if value is None or attr.kind not in ("axis", "axes"):
            return value
        rank = self.rank_of(attr)
        if attr.kind == "axis":
            return self._axis(attr, value, rank)
        axes = sorted(self._axis(attr, a, rank) for a in value)
        if len(set(axes)) != len(axes):
            raise ValueError(f"{self.op.name}: {attr.name} names a dimension twice")
        return axes or list(range(rank))

    def rank_of(self, attr: Attr) -> int:
        """The rank that an axis or axes attribute counts in."""
        if attr.rank_of is None:
            return len(_set(self.first)[1])
        scope = self.elements[0] if self.elements else self.scope
        return len(self._sequence(attr.rank_of, scope))

    def _axis(self, attr: Attr, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise ValueError(f"{self.op.name}: {attr.name} is {axis}, but the rank is {rank}")
        return axis % rank

    # ---- shapes of inputs

    def _bind_shapes(self, given: Sequence[tuple[Input, Sequence[Operand]]]) -> None:
        """Each input tells dimensions, and needs some to be told; they go round until nothing new turns up."""
        waiting: list[tuple[Input, Shape, _Scope]] = []
        own = [(p.name, len(o)) for p, o in given if p.list and o and set(_names(p.shape)) - self.shared]
        for name, length in own:
            if length != own[0][1]:
                raise ValueError(f"{self.op.name}: {name} has {length} tensors, but {own[0][0]} has {own[0][1]}")
        for param, operands in given:
            for k, (_, shape) in enumerate(operands):
                waiting.append((param, shape, self._element(k) if param.list else self.scope))
        waiting.sort(key=lambda w: w[0].list)
        for last in (False, True):
            progress = True
            while waiting and progress:
                left = [w for w in waiting if not self._match(*w, last=last)]
                progress = len(left) < len(waiting)
                waiting = left

    def _element(self, k: int) -> _Scope:
        while len(self.elements) <= k:
            self.elements.append(_Scope(outer=self.scope))
        return self.elements[k]

    def _items(self, shape: Json, scope: _Scope) -> Sequence[Json]:
        if isinstance(shape, dict):
            chosen: Sequence[Json] = shape["then"] if self._value(shape["if"], scope) else shape["else"]
            return chosen
        items: Sequence[Json] = shape
        return items

    def _match(self, param: Input, shape: Shape, scope: _Scope, last: bool) -> bool:
        """Whether all of the input's dimensions have been compared. `last`: what only broadcasts may be bound now."""
        items = self._items(param.shape, scope)
        fixed = sum("expr" in item for item in items)
        rest = len(shape) - fixed  # at most one item stands for any number of dimensions
        if rest < 0 or (rest > 0 and fixed == len(items)):
            at_least = "at least " if fixed < len(items) else ""
            raise ValueError(f"{self.op.name}: {param.name} has rank {len(shape)}, needs {at_least}{fixed}")
        at = 0
        done = True
        for item in items:
            n = 1 if "expr" in item else rest
            sizes = shape[at : at + n]
            at += n
            try:
                if "expr" in item:
                    self._match_size(param, shape, item, sizes[0], scope, last)
                else:
                    self._match_sequence(param, shape, item, sizes, scope, last)
            except _Unset:
                done = False
        return done

    def _home(self, name: str, scope: _Scope) -> _Scope:
        """Where a pack or a dimension is kept: what single tensors have is the same for all elements of a list."""
        return self.scope if name in self.shared else scope

    def _match_sequence(self, param: Input, shape: Shape, item: Json, sizes: Shape, scope: _Scope, last: bool) -> None:
        loose = bool(item.get("broadcast"))
        pack = item.get("pack")
        if pack is not None and not scope.has_pack(pack) and (last or not loose):
            self._home(pack, scope).packs[pack] = sizes
            self.source[f"*{pack}"] = f"{param.name} {_text(shape)}"
            if loose:
                self.soft.add(f"*{pack}")
            return
        if item.get("fn") == "rows" and len(item["of"]) == 1 and last and "pack" in item["of"][0]:
            rows = item["of"][0]["pack"]
            if not scope.has_pack(rows):  # it tells all but the last size, which nobody asks for
                self._home(rows, scope).packs[rows] = (*sizes, 1)
        message = f"{self.op.name}: {param.name} has shape {_text(shape)}, "
        if item.get("fn") == "resize":
            rank = len(self._sequence(item["a"], scope))
            if len(sizes) != rank:  # said here, as such a shape tells no size along the axis to go on with
                raise ValueError(f"{message}needs {rank} dimensions where that has {len(sizes)}")
            self._solve(item["size"], sizes[self._attr(item["axis"])], scope)
        if f"*{pack}" in self.soft:
            home = self._home(pack, scope)
            said = f"*{pack} = {_text(home.packs[pack])} from {self.source[f'*{pack}']}"
            home.packs[pack] = self._broadcast(home.packs[pack], sizes, f"{message}which does not broadcast to {said}")
        wanted = self._dims(item, scope)
        lead = len(wanted) - len(sizes)
        if pack is None:
            message += f"needs {_text(wanted)}"
        else:
            said = f"*{pack} {'=' if loose else 'is'} {_text(wanted)} from {self.source.get(f'*{pack}', 'it')}"
            message += f"which does not broadcast to {said}" if loose else f"but {said}"
        if lead < 0 or (lead > 0 and not loose):
            raise ValueError(message)
        for have, want in zip(sizes, wanted[lead:], strict=True):
            if not (loose and self.is_one(have)):
                self.require(have == want, message)

    def _match_size(self, param: Input, shape: Shape, item: Json, size: int, scope: _Scope, last: bool) -> None:
        loose = bool(item.get("broadcast"))
        name = item["expr"].get("dim") if loose and isinstance(item["expr"], dict) else None
        if name is not None and last:
            if not scope.has_dim(name):
                self.soft.add(name)
            elif name in self.soft:
                home = self._home(name, scope)
                (home.dims[name],) = self._broadcast((home.dims[name],), (size,))
        dim = item["expr"].get("dim") if isinstance(item["expr"], dict) else None
        if not loose or last:
            if dim is not None and not scope.has_dim(dim):
                self.source[dim] = f"{param.name} {_text(shape)}"
            self._solve(item["expr"], size, scope)
        wanted = self._value(item["expr"], scope)
        if not (loose and self.is_one(size)):
            message = f"{self.op.name}: {param.name} has shape {_text(shape)}, "
            if dim in self.source and not loose:
                message += f"but {dim} is {wanted} from {self.source[dim]}"
            else:
                message += f"but its {size} has to be {'1 or ' if loose else ''}{wanted}"
            self.require(size == wanted, message)

    def _solve(self, expr: Json, target: int, scope: _Scope) -> None:
        """Binds the one unknown of an expression that must come to `target`; nothing where there is not just one."""
        if not isinstance(expr, dict):
            return
        if "dim" in expr and not scope.has_dim(expr["dim"]):
            self._home(expr["dim"], scope).dims[expr["dim"]] = target
        if "op" not in expr:
            return
        known = [self._known(a, scope) for a in expr["args"]]
        if known.count(None) != 1:
            return
        at = known.index(None)
        unknown, other = expr["args"][at], known[1 - at] if len(known) == 2 else 0
        if expr["op"] == "neg":
            self._solve(unknown, -target, scope)
        elif expr["op"] == "+":
            self._solve(unknown, target - other, scope)
        elif expr["op"] == "-":
            self._solve(unknown, target + other if at == 0 else other - target, scope)
        elif expr["op"] == "*" and other != 0:
            self._solve(unknown, target // other, scope)

    def _but(self, expr: Json) -> str:
        """What the names of a condition are, as the C library says it; sizes that are not numbers are left out."""
        found: dict[str, Any] = {}

        def look(part: Json) -> None:
            if isinstance(part, dict) and "op" in part:
                for argument in part["args"]:
                    look(argument)
            elif isinstance(part, dict) and "str" not in part:
                name = part.get("dim") or part.get("attr") or f"rank(*{part.get('rank')})"
                found[f"{name}[{part['at']}]" if "at" in part else name] = self._known(part, self.scope)

        look(expr)
        words = [f"{n} is {_word(v)}" for n, v in found.items() if isinstance(v, str | bool | int | float)]
        return ", but " + " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""

    def _known(self, expr: Json, scope: _Scope) -> Any:
        try:
            return self._value(expr, scope)
        except _Unset:
            return None

    # ---- expressions

    def _value(self, expr: Json, scope: _Scope) -> Any:
        if not isinstance(expr, dict):
            return expr
        if "op" in expr:
            return self._operate(expr["op"], expr["args"], scope)
        if "dim" in expr:
            return scope.dim(expr["dim"])
        if "rank" in expr:
            return len(scope.pack(expr["rank"]))
        if "str" in expr:
            return expr["str"]
        value = self._attr(expr["attr"])
        return value[expr["at"]] if "at" in expr else value

    def _operate(self, op: str, args: Sequence[Json], scope: _Scope) -> Any:
        if op in ("and", "or"):
            first = self._value(args[0], scope)
            return self._value(args[1], scope) if bool(first) is (op == "and") else first
        values = [self._value(a, scope) for a in args]
        if op in ("/", "%") and values[1] == 0:
            raise ValueError(f"{self.op.name}: the contract divides by zero")
        return _OPERATIONS[op](*values)

    # ---- sequences of dimensions

    def _sequence(self, seq: Json, scope: _Scope) -> Shape:
        return tuple(self.attrs[seq["attr"]]) if "attr" in seq else scope.pack(seq["pack"])

    def _dims(self, item: Json, scope: _Scope) -> Shape:
        """The dimensions that an item of a shape stands for."""
        if "expr" in item:
            return (self._value(item["expr"], scope),)
        if "spread" in item:
            return self._sequence({"attr": item["spread"]}, scope)
        if "pack" in item:
            return scope.pack(item["pack"])
        function = item["fn"]
        if function == "concat":
            return self._concat(item)
        if function in ("broadcast", "rows"):
            return self._rows(item, [self._sequence(of, scope) for of in item["of"]])
        dims = self._sequence(item["a"], scope)
        if function == "resize":
            return self._resize(item, dims, scope)
        make = {"permute": self._permute, "pad": self._pad, "repeat": self._repeat, "reduce": self._reduce}
        return make[function](item, dims)

    def _resize(self, item: Json, dims: Shape, scope: _Scope) -> Shape:
        axis = self._attr(item["axis"])
        return (*dims[:axis], self._value(item["size"], scope), *dims[axis + 1 :])

    def _rows(self, item: Json, shapes: Sequence[Shape]) -> Shape:
        columns = [bool(of.get("rows")) for of in item["of"]]
        plain = reduce(self._broadcast, (s for s, c in zip(shapes, columns, strict=True) if not c))
        reduced = [(*s[:-1], 1) if s else () for s, c in zip(shapes, columns, strict=True) if c]
        made = reduce(self._broadcast, reduced, plain)
        reduce(self._broadcast, shapes)  # what columns are made of has to go with the others, too
        # Beside single numbers alone there is no last dimension.
        return made[:-1] if item["fn"] == "rows" or (reduced and not plain) else made

    def _permute(self, item: Json, dims: Shape) -> Shape:
        order = self.attrs[item["dims"]]
        if sorted(d + len(dims) if d < 0 else d for d in order) != list(range(len(dims))):
            raise ValueError(f"{self.op.name}: {item['dims']} is {order}, which is no order of {len(dims)} dimensions")
        return tuple(dims[d] for d in order)

    def _pad(self, item: Json, dims: Shape) -> Shape:
        pad = self.attrs[item["pad"]]
        if len(pad) % 2 or len(pad) > 2 * len(dims):
            wrong = f"which is not a pair for each of some dimensions of {_text(dims)}"
            raise ValueError(f"{self.op.name}: {item['pad']} is {list(pad)}, {wrong}")
        made = list(dims)
        for k in range(len(pad) // 2):
            made[-1 - k] = made[-1 - k] + (pad[2 * k] + pad[2 * k + 1])
        return tuple(made)

    def _repeat(self, item: Json, dims: Shape) -> Shape:
        times = self.attrs[item["repeats"]]
        if len(times) < len(dims) or any(n < 0 for n in times):
            wrong = f"which is not a number of repeats for each dimension of {_text(dims)}"
            raise ValueError(f"{self.op.name}: {item['repeats']} is {list(times)}, {wrong}")
        return tuple(n * d for n, d in zip(times, (1,) * (len(times) - len(dims)) + dims, strict=True))

    def _reduce(self, item: Json, dims: Shape) -> Shape:
        axes = self._attr(item["axes"])
        gone = set(axes) if isinstance(axes, list) else {axes}
        keep = item.get("keepdim") is not None and self.attrs[item["keepdim"]]
        return tuple(1 if i in gone else n for i, n in enumerate(dims) if keep or i not in gone)

    def _broadcast(self, a: Shape, b: Shape, message: str | None = None) -> Shape:
        n = max(len(a), len(b))
        made = []
        for x, y in zip((1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b, strict=True):
            if self.is_one(x):
                made.append(y)
                continue
            if not self.is_one(y):
                self.require(x == y, message or f"{self.op.name}: {_text(a)} and {_text(b)} do not broadcast")
            made.append(x)
        return tuple(made)

    def _concat(self, item: Json) -> Shape:
        shapes = [self._sequence(item["a"], scope) for scope in self.elements]
        axis = self._attr(item["axis"])
        made = list(_set(shapes[0] if shapes else None))
        for shape in shapes[1:]:
            message = f"{self.op.name}: {_text(shapes[0])} and {_text(shape)} differ beyond dimension {axis}"
            if len(shape) != len(made):
                raise ValueError(message)
            for d, size in enumerate(shape):
                if d != axis:
                    self.require(size == made[d], message)
            made[axis] = made[axis] + shape[axis]
        return tuple(made)


def _operands(param: Input, argument: Argument, op: Operator) -> Sequence[Operand]:
    if argument is None or (param.list and not argument):
        if not param.optional:
            raise ValueError(f"{op.name}: {param.name} is missing")
        return ()
    return argument if param.list else (argument,)  # type: ignore[return-value]


def _one_of(names: Sequence[str]) -> str:
    """As the C library lists things."""
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _wrapped(kind: str, type_: Json) -> str:
    wrap = type_.get("wrap")
    return (_ACC if wrap == "acc" else _COMPLEX if wrap == "complex" else {}).get(kind, kind)


def _shared_names(op: Operator) -> set[str]:
    """Names that something outside the lists uses; the others are each element's own."""
    shapes = [p.shape for p in op.inputs if not p.list] + [o.shape for o in op.outputs]
    return set(_names([shapes, [expr for _, expr in op.where]]))


def _names(part: Json) -> Iterator[str]:
    if isinstance(part, dict):
        if part.get("fn") == "concat":
            return
        for key, value in part.items():
            if key in ("dim", "pack", "rank"):
                yield value
            else:
                yield from _names(value)
    elif isinstance(part, list | tuple):
        for one in part:
            yield from _names(one)


def _set(value: Any) -> Any:
    if value is None:
        raise _Unset
    return value


def _text(shape: Sequence[int]) -> str:
    return "(" + ", ".join(str(n) for n in shape) + ")"
