"""The operator table in Python: rows as the C library parsed them, and inference of output types and shapes.

The C parser is the only parser; its JSON is described in src/core/contract/contract.h.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import finalize

from tenon import _lib
from tenon._recent import kept_while_used

Json = Any
Shape = tuple[int, ...]
Operand = tuple[str, Shape]  # element type, sizes
Argument = Operand | Sequence[Operand] | None  # a tensor, a list of them, or nothing

FLOATS = frozenset(("f16", "bf16", "f32", "f64", "e4m3", "e5m2"))
COMPLEX = frozenset(("c64", "c128"))
# NumPy's names of the element types, which frameworks use too; those of the last three come from ml_dtypes.
NUMPY_NAMES = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}


@dataclass(frozen=True)
class Input:
    """A tensor, or a list of them, that an operator takes."""

    name: str
    type: Json
    shape: Json
    optional: bool
    inplace: bool
    list: bool


@dataclass(frozen=True)
class Attr:
    """A constant that an operator takes. `implied` ones ask for outputs marked `?`."""

    name: str
    kind: str
    optional: bool
    required: bool
    default: Any
    implied: bool
    length: int | None
    choices: tuple[str, ...]
    rank_of: Json


@dataclass(frozen=True)
class Output:
    """A tensor that an operator makes: always, when asked for, or when an input needs a gradient."""

    name: str
    type: Json
    shape: Json
    want: str
    want_attr: str | None
    list: bool


@dataclass(frozen=True)
class Source:
    """What a parameter of an operator that a gradient rule calls is given."""

    param: str
    is_attr: bool
    kind: str
    name: str
    value: Any


@dataclass(frozen=True)
class Statement:
    """A call in a gradient rule; result k is output k of the called operator."""

    results: tuple[str, ...]
    local: bool
    op: str
    formula: str | None  # of a called operator that is in no table
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Rule:
    """How an operator is differentiated."""

    differentiable: frozenset[str]
    statements: tuple[Statement, ...]
    stands_in: bool  # it is not the derivative, and is meant not to be


@dataclass(frozen=True)
class Operator:
    """A row of the table."""

    name: str
    signature: str
    doc: str
    autocast: str | None
    formula: str | None  # as the row says it; kernels and gradient are derived from it
    types: Mapping[str, tuple[str, ...]]
    params: tuple[Input | Attr, ...]  # as written, implied attributes last
    outputs: tuple[Output, ...]
    where: tuple[tuple[str, Json], ...]
    grad: Json  # the rule, "derived", or None
    samples: tuple[Json, ...]
    address: int  # in the C library

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(p for p in self.params if isinstance(p, Input))

    @cached_property
    def attrs(self) -> tuple[Attr, ...]:
        return tuple(p for p in self.params if isinstance(p, Attr))

    @cached_property
    def mutates(self) -> bool:
        return any(p.inplace for p in self.inputs)

    @cached_property
    def rule(self) -> Rule | None:
        """How it is differentiated; what a formula's is derived from it when it is first asked for."""
        return _rule(_lib.gradient_json(self.address) if self.grad == "derived" else self.grad)

    @cached_property
    def kept(self) -> dict[Any, Any]:
        """What a front end keeps of it, for as long as it is there."""
        return {}

    def infer(self, inputs: Sequence[Argument], attrs: Mapping[str, Any]) -> list[Operand | None]:
        """Type and shape of each output; None where a `?` output was not asked for."""
        from tenon.infer import Binding

        return Binding(self, inputs, attrs).outputs()


# ---- from JSON -------------------------------------------------------------------------------------------------------


def _param(p: Json) -> Input | Attr:
    if p["kind"] == "input":
        return Input(p["name"], p["type"], p["shape"], p["optional"], p["inplace"], p["list"])
    return Attr(
        name=p["name"],
        kind=p["type"],
        optional=p["optional"],
        required=p["required"],
        default=p.get("default"),
        implied=p["implied"],
        length=p.get("length"),
        choices=tuple(p.get("choices") or ()),
        rank_of=p.get("rank_of"),
    )


def _output(o: Json) -> Output:
    return Output(o["name"], o["type"], o["shape"], o["want"], o["want_attr"], o["list"])


def _statement(s: Json) -> Statement:
    sources = tuple(Source(a["param"], a["attr"], a["from"], a.get("name", ""), a.get("value")) for a in s["args"])
    return Statement(tuple(s["results"]), s["local"], s["op"], s.get("formula"), sources)


def _rule(grad: Json) -> Rule | None:
    return grad and Rule(
        frozenset(grad["differentiable"]), tuple(_statement(s) for s in grad["statements"]), grad["stands_in"]
    )


def _operator(row: Json, address: int) -> Operator:
    return Operator(
        name=row["name"],
        signature=row["signature"],
        doc=row["doc"],
        autocast=row["autocast"],
        formula=row["formula"],
        types={t["name"]: tuple(t["of"]) for t in row["types"]},
        params=tuple(_param(p) for p in row["params"]),
        outputs=tuple(_output(o) for o in row["outputs"]),
        where=tuple((w["text"], w["expr"]) for w in row["where"]),
        grad=row["grad"],
        samples=tuple(row["samples"]),
        address=address,
    )


_table: dict[str, Operator] = {}


def table() -> Mapping[str, Operator]:
    """Every operator by name, in the table's order."""
    if len(_table) != _lib.lib.tn_function_count():
        for row in _lib.table_json():
            if row["name"] not in _table:
                _table[row["name"]] = _operator(row, _lib.find(row["name"]))
    return _table


def fused(formula: str, fast: bool = False) -> Operator:
    """The operator that a formula is."""
    if not isinstance(formula, str):
        raise TypeError(f"a formula is a str, not {type(formula).__name__}")
    return _fused(formula, bool(fast))


@kept_while_used
def _fused(formula: str, fast: bool) -> Operator:
    address, row = _lib.fuse(formula, fast)
    op = _operator(row, address)
    finalize(op, _lib.lib.tn_fuse_release, address).atexit = False
    return op


def attribute_text(kind: str, value: Any) -> str:
    """The value of an attribute as the C library reads it."""
    if kind == "float":
        return f"{float(value)!r}"
    if kind == "bool":
        return "true" if value else "false"
    if kind in ("axes", "ints"):
        return "[" + ", ".join([f"{int(v)}" for v in value]) + "]"  # dynamo cannot write a list as text
    return f"{int(value)}" if kind in ("int", "axis") else f"'{value}'"  # a symbol becomes a constant here


def read_attribute(kind: str, text: str) -> Any:
    """The value of an attribute from what `attribute_text` wrote."""
    if kind in ("axes", "ints"):
        return [int(n) for n in re.findall(r"-?\d+", text)]
    if kind == "bool":
        return text == "true"
    return float(text) if kind == "float" else int(text) if kind in ("int", "axis") else text.strip("'")


def attribute_words(text: str) -> list[tuple[str, str]]:
    """Names and texts of attributes that stand side by side: "eps=0.1 mode='a b' axes=[0, 2]"."""
    return re.findall(r"(\w+)=('[^']*'|\[[^\]]*\]|\S+)", text)


# ---- strides ---------------------------------------------------------------------------------------------------------


def dense_strides(shape: Sequence[int]) -> Shape:
    """Strides of a tensor without gaps, the last dimension fastest."""
    strides: list[int] = []
    stride = 1
    for size in reversed(shape):
        strides.append(stride)
        stride = stride * (size if size > 0 else 1)
    return tuple(reversed(strides))


def is_permuted_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Every element at its own place and no gaps, in some order of the dimensions; the C library's own rule."""
    left = list(range(len(shape)))
    stride = 1
    while left:
        ones = [i for i in left if shape[i] == 1]
        fits = ones[:1] or [i for i in left if strides[i] == stride][-1:]
        if not fits:
            return False
        left.remove(fits[0])
        stride = stride * shape[fits[0]]
    return True


def followed(op: Operator, output: Output) -> list[int]:
    """The inputs that have an output's dimensions as written: the first of them that has its shape in a call tells its
    strides, if it has no gaps."""
    return [i for i, p in enumerate(op.inputs) if not p.list and _same_names(p.shape, output.shape)]


def _same_names(a: Json, b: Json) -> bool:
    if isinstance(a, dict) or isinstance(b, dict) or len(a) != len(b):
        return False
    return all(_name(x) is not None and _name(x) == _name(y) for x, y in zip(a, b, strict=True))


def _name(item: Json) -> tuple[str, str] | None:
    """The name of a pack or a dimension; None for anything else."""
    if "pack" in item:
        return "pack", item["pack"]
    expr = item.get("expr")
    return ("dim", expr["dim"]) if isinstance(expr, dict) and "dim" in expr else None
