"""The functions of tenon.numpy: one for each row of the operator table, and formulas."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy
from numpy import ndarray

from tenon._arguments import (
    alike_inputs,
    check_number,
    is_broadcast,
    is_number,
    is_told,
    listed,
    number_type,
    takes_number,
)
from tenon._frame import Calls, type_name, type_number
from tenon._frameworks import NumpyFunction
from tenon._lib import lib
from tenon._public import drop_absent, formula_operator, make_fuse, one_row, shown_outputs
from tenon._structs import Host
from tenon._suggest import instead
from tenon.contract import FLOATS, Attr, Input, Operand, Operator, followed, table
from tenon.numpy._arrays import (
    Held,
    dtype_name,
    dtype_of,
    is_array,
    is_on_gpu,
    is_real,
    made_like,
    operand,
    read,
    stream_of,
)

_NUMPYS = (ndarray, numpy.generic)
_SETTLED = (*_NUMPYS, int, float)  # what NumPy itself would promote


lib.tn_stream_host.argtypes = [ctypes.c_void_p]
lib.tn_stream_host.restype = Host


def _same_type(given: Sequence[Any]) -> Sequence[Any]:
    """Arrays of one type by the contract in the type that NumPy computes with, if that is a floating one; plain numbers
    stay as they are."""
    arrays = [a for a in given if isinstance(a, _NUMPYS)]
    try:
        dtype = numpy.result_type(*arrays)
        if dtype.kind in "biu" and any(isinstance(a, float) for a in given):
            dtype = numpy.result_type(dtype, float)
    except TypeError:  # there is none, as for bf16 and f16: the call says which one it needs
        return given
    if dtype_name(dtype) not in FLOATS or not all(is_real(a.dtype) for a in arrays):
        return given
    return [a.astype(dtype, copy=False) if isinstance(a, _NUMPYS) else a for a in given]


def _empty(args: Sequence[Any], like: Sequence[int], dtype: Any, shape: tuple[int, ...]) -> Any:
    """A new array, laid out as the first of the arguments `like` that has its shape."""
    for i in like:
        if type(args[i]) is ndarray and args[i].shape == shape:
            return numpy.empty_like(args[i], dtype)
    return numpy.empty(shape, dtype)


class NumpyOp:
    """An operator for arrays."""

    def __init__(self, op: Operator, shown: Sequence[int]) -> None:
        lists = [o.name for o in op.outputs if o.list]
        if lists:
            raise NotImplementedError(f"{op.name}: {lists[0]} is a list of outputs, which NumPy does not get yet")
        self.op = op
        self.shown = list(shown)
        self.calls = Calls(op, dtype_name)
        self.inputs = [(i, p, f"{op.name}: {p.name}") for i, p in enumerate(op.params) if isinstance(p, Input)]
        self.attrs = [i for i, p in enumerate(op.params) if isinstance(p, Attr)]
        self.numbers = [i for i, p in enumerate(op.params) if takes_number(p)]
        self.broadcast = {i for i, p, _ in self.inputs if is_broadcast(p)}
        self.told = [i for i, p, _ in self.inputs if is_number(p) and is_told(op, p)]
        self.alike = alike_inputs(op)
        places = [i for i, _, _ in self.inputs]
        self.outputs = [
            (k, f"{op.name}: {o.name}", [places[i] for i in followed(op, o)]) for k, o in enumerate(op.outputs)
        ]

    def __call__(self, out: Any, *args: Any) -> Any:
        """What users see of the outputs. `args`: all parameters by position; `out`: an array for the one result."""
        made = self._run(args, self.shown, out)
        if len(self.shown) == 1:
            return made[self.shown[0]]
        return drop_absent(tuple(made[k] for k in self.shown)) if self.shown else None

    def full(self, *args: Any) -> list[Any]:
        """All outputs; None where one was not asked for."""
        return self._run(args, range(len(self.outputs)), None)

    def _run(self, args: Sequence[Any], wanted: Sequence[int], out: Any) -> list[Any]:
        if self.alike or self.numbers:
            args = self._settle(args)
        held: list[Any] = []
        pointers, lengths, gpu = self._read(args, held)
        frame = self.calls.begin(pointers, lengths, [args[i] for i in self.attrs], held)
        made: list[Any] = []
        addresses: list[int] = []
        for k, what, like in self.outputs:
            spec = self.calls.spec(frame, k)
            if spec is None or k not in wanted:
                made.append(None)
                addresses.append(0)
                continue
            number, shape = spec
            if out is not None:
                what = f"{self.op.name}: out"
                array = self._checked(out, number, shape)
            elif gpu is not None:
                array = made_like(gpu, "empty", shape, number, what)
            else:
                array = _empty(args, like, dtype_of(number, what), shape)
            tensor = read(array, what, True)
            held.append(tensor)
            made.append(array)
            addresses.append(tensor[1])
        host = None if gpu is None else lib.tn_stream_host(stream_of(gpu))
        self.calls.run(frame, addresses, None if host is None else ctypes.addressof(host))
        return made

    # ---- arguments

    def _read(self, args: Sequence[Any], held: list[Any]) -> tuple[list[int], list[int], Any]:
        """Addresses of the inputs' tensors, how many each input has, and an array that is on a GPU, if one is."""
        pointers: list[int] = []
        lengths: list[int] = []
        gpu = None
        for place, param, what in self.inputs:
            value = args[place]
            if value is None and param.optional:
                lengths.append(0 if param.list else 1)
                pointers += [] if param.list else [0]
                continue
            values = listed(self.op, param, value, "arrays") if param.list else (value,)
            for k, one in enumerate(values):
                if type(one) is float:
                    raise TypeError(f"{what} must be an array, not float; {instead(self.op, one, 'numpy.asarray')}")
                tensor = read(one, f"{what}[{k}]" if param.list else what, param.inplace)
                held.append(tensor)
                pointers.append(tensor[1])
                if gpu is None and type(one) is not ndarray and is_on_gpu(tensor):
                    gpu = one
            lengths.append(len(values))
        return pointers, lengths, gpu

    def _settle(self, args: Sequence[Any]) -> Sequence[Any]:
        """Inputs of one type by the contract get one, and plain numbers for 0-dim inputs become arrays."""
        for alike in self.alike:
            places = [i for i in alike if i not in self.told]  # those say little, and follow the others
            given = [args[i] for i in places]
            arrays = [a for a in given if isinstance(a, _NUMPYS)]
            differ = any(a.dtype is not arrays[0].dtype for a in arrays) or any(isinstance(a, float) for a in given)
            if arrays and differ and all(a is None or isinstance(a, _SETTLED) for a in given):
                same = dict(zip(places, _same_type(given), strict=True))
                args = [same.get(i, value) for i, value in enumerate(args)]
        foreign = any(is_array(args[i]) and not isinstance(args[i], ndarray) for i, _, _ in self.inputs)
        plain = [i for i in self.numbers if args[i] is not None and self._is_plain(i, args[i], foreign)]
        for i in plain:
            args = [*args[:i], self._number(i, args, plain), *args[i + 1 :]]
            plain = plain[1:]
        return args

    def _is_plain(self, place: int, value: Any, foreign: bool) -> bool:
        """Whether something is a number and no more. NumPy's arrays of one say little by their types where other inputs
        say it, or where they are beside arrays of another library (`foreign`), which may be on a GPU."""
        is_single = isinstance(value, _NUMPYS) and value.ndim == 0 and value.dtype.kind in "biuf"
        if place in self.broadcast:
            return (is_single and foreign) or (isinstance(value, int | float) and not isinstance(value, numpy.generic))
        return (is_single and place in self.told) or not is_array(value)

    def _number(self, place: int, args: Sequence[Any], plain: Sequence[int]) -> Any:
        """A plain number as an array of the type that the contract says, where the others are; `plain` are those that
        are no arrays yet."""
        param, value = self.op.params[place], args[place]
        assert isinstance(param, Input)
        what = f"{self.op.name}: {param.name}"
        if not isinstance(value, int | float | numpy.number | numpy.bool_ | ndarray):
            raise TypeError(f"{what} must be a number or an array, not {type(value).__name__}")
        given: list[tuple[Input, list[Operand]]] = []
        gpu = None
        for i, other, name in self.inputs:
            values = args[i] if other.list and isinstance(args[i], list | tuple) else [args[i]]
            arrays = [] if i in plain else [v for v in values if v is not None]
            tensors: list[tuple[Any, Held]] = [(v, read(v, name, False)) for v in arrays]
            gpu = next((v for v, tensor in tensors if is_on_gpu(tensor)), gpu)
            given.append((other, [operand(tensor) for _, tensor in tensors]))
        told = {None, *(other.type.get("var") for other, operands in given if operands)}
        if place in self.broadcast and param.type.get("var") not in told:
            raise TypeError(f"{what} must be an array, not {type(value).__name__}: no other input says its type")
        named = {p.name: value for p, value in zip(self.op.params, args, strict=True)}
        kind = number_type(self.op, param, given, named, dtype_name)
        check_number(self.op, param, value, kind)
        number = type_number(kind)
        if gpu is not None:
            return made_like(gpu, "full", (), number, what, value)
        return numpy.array(value, dtype_of(number, what))

    def _checked(self, out: Any, number: int, shape: tuple[int, ...]) -> Any:
        """The caller's array for the result."""
        name = self.op.name
        if type(out) is ndarray and out.shape == shape and out.dtype is dtype_of(number, name):
            return out
        needs = type_name(number)
        kind, sizes = operand(read(out, f"{name}: out", True))
        if sizes != shape:
            raise ValueError(f"{name}: out has shape {list(sizes)}, needs {list(shape)}")
        if kind != needs:
            raise TypeError(f"{name}: out has type {kind}, needs {needs}")
        return out


# ---- public functions ------------------------------------------------------------------------------------------------


def _one_row(x: Any, axis: int | None) -> Any:
    """As one_row of _public.py. NumPy adds up integers that are narrower than int in its place."""
    if isinstance(x, _NUMPYS) and x.dtype.kind in "biu" and x.dtype.itemsize < 8:
        x = x.astype(numpy.uint64 if x.dtype.kind == "u" else numpy.int64)
    return one_row(x, axis)


def make_public(made: NumpyOp) -> Callable[..., Any]:
    """The public function of an operator."""
    names = {"Array": Any, "dtype": Any, "_call": made, "_one_row": _one_row}
    return NumpyFunction(made.op, made.shown).compiled(names)


@cache
def numpy_op(name: str) -> NumpyOp:
    """A row of the table for arrays."""
    op = table()[name]
    return NumpyOp(op, shown_outputs(op))


def _make_formula(formula: str, fast: bool) -> Callable[..., Any]:
    op = formula_operator(formula, fast)
    return make_public(NumpyOp(op, range(len(op.outputs))))


_UPDATES = "A formula that updates inputs writes to the arrays that it is given, and returns what outputs it has."
fuse = make_fuse("tenon.numpy", _make_formula, _UPDATES, gradient="")
