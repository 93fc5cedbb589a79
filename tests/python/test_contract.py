"""Inference in Python says what inference in C says: on all samples, and on calls changed at random, good and bad."""

from __future__ import annotations

import ctypes
import pathlib
import random
from collections.abc import Sequence
from typing import Any

import pytest
from cases import cases

import tenon
from tenon._lib import last_error, lib
from tenon.contract import Attr, Operand, Operator, dense_strides, fused, is_permuted_dense

MAX_RANK = 16
TYPES = ["f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "bool", "c64", "c128", "e4m3", "e5m2"]


class DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Value(ctypes.Union):
    _fields_ = [
        ("i", ctypes.c_int64),
        ("f", ctypes.c_double),
        ("b", ctypes.c_bool),
        ("s", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
    ]


class AttrValue(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int16),
        ("choice", ctypes.c_int16),
        ("count", ctypes.c_int32),
        ("value", Value),
    ]


class Args(ctypes.Structure):
    _fields_ = [
        ("inputs", ctypes.POINTER(ctypes.POINTER(Tensor))),
        ("n_in", ctypes.c_int32),
        ("lengths", ctypes.POINTER(ctypes.c_int32)),
        ("attrs", ctypes.POINTER(AttrValue)),
        ("n_attrs", ctypes.c_int32),
        ("out", ctypes.c_void_p),
        ("n_out", ctypes.c_int32),
        ("kernel", ctypes.c_char_p),
    ]


class Spec(ctypes.Structure):
    _fields_ = [
        ("present", ctypes.c_bool),
        ("type", ctypes.c_int),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_RANK),
    ]


lib.tn_infer.argtypes = [ctypes.c_void_p, ctypes.POINTER(Args), ctypes.POINTER(Spec)]
lib.tn_dtype_of.restype = DType
lib.tn_dtype_of.argtypes = [ctypes.c_int]


def c_tensor(operand: Operand) -> Any:
    kind, shape = operand
    sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    t = Tensor(device_kind=1, ndim=len(shape), dtype=lib.tn_dtype_of(TYPES.index(kind) + 1), shape=sizes)
    return ctypes.pointer(t)


def c_attr(attr: Attr, value: Any) -> AttrValue:
    made = AttrValue(name=attr.name.encode())
    if attr.kind in ("int", "axis"):
        made.kind, made.value.i = 1, value
    elif attr.kind == "float":
        made.kind, made.value.f = 2, value
    elif attr.kind == "bool":
        made.kind, made.value.b = 3, value
    elif attr.kind in ("str", "choice", "activation"):
        made.kind, made.value.s = 4, value.encode()
    elif attr.kind == "dtype":
        made.kind, made.value.type = 5, TYPES.index(value) + 1
    else:
        made.kind, made.count = 6, len(value)
        made.value.ints = (ctypes.c_int64 * max(len(value), 1))(*value)
    return made


def infer_in_c(op: Operator, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[Operand | None] | str:
    """The outputs, or the message."""
    flat, lengths = [], []
    for param, argument in zip(op.inputs, inputs, strict=True):
        operands = (argument or []) if param.list else [argument]
        flat += [ctypes.POINTER(Tensor)() if o is None else c_tensor(o) for o in operands]
        lengths.append(len(operands))
    made = [c_attr(a, attrs[a.name]) for a in op.attrs if attrs.get(a.name) is not None]
    args = Args(
        inputs=(ctypes.POINTER(Tensor) * max(len(flat), 1))(*flat),
        n_in=len(flat),
        lengths=(ctypes.c_int32 * len(lengths))(*lengths),
        attrs=(AttrValue * max(len(made), 1))(*made),
        n_attrs=len(made),
    )
    specs = (Spec * max(len(op.outputs), 1))()
    if lib.tn_infer(op.address, args, specs) != 0:
        return last_error()
    found: list[Operand | None] = []
    for spec in specs[: len(op.outputs)]:
        found.append((TYPES[spec.type - 1], tuple(spec.shape[: spec.ndim])) if spec.present else None)
    return found


def infer_in_python(op: Operator, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[Operand | None] | str:
    try:
        return op.infer(inputs, attrs)
    except (ValueError, TypeError) as error:
        return str(error)


def compare(op: Operator, inputs: Sequence[Any], attrs: dict[str, Any]) -> bool:
    """Whether the call is good, after checking that both think so."""
    here, there = infer_in_python(op, inputs, attrs), infer_in_c(op, inputs, attrs)
    what = f"{op.signature}\n{inputs} {attrs}\nPython: {here}\nC: {there}"
    assert isinstance(here, str) == isinstance(there, str), what
    if isinstance(here, str):
        assert here.startswith(f"{op.name}: ") and str(there).startswith(f"{op.name}: "), what
        return False
    assert here == there, what
    return True


def inputs_of(case: Any, T: str) -> list[Any]:
    made: dict[str, Any] = {p.name: None for p in case.op.inputs}
    lists = {p.name for p in case.op.inputs if p.list}
    for given in case.sample["inputs"]:
        name, operand = given["name"], (case.kind(given, T), tuple(given["shape"]))
        made[name] = [*(made[name] or []), operand] if name in lists else operand
    return [made[p.name] for p in case.op.inputs]


@pytest.mark.parametrize("case", cases(), ids=str)
def test_samples(case: Any) -> None:
    for T in ("f16", "bf16", "f32", "f64"):
        assert compare(case.op, inputs_of(case, T), case.sample["attrs"])


def change(op: Operator, inputs: list[Any], attrs: dict[str, Any], rng: random.Random) -> None:
    """One thing of a call becomes something else."""
    tensors = [i for i, v in enumerate(inputs) if v is not None]
    what = rng.randrange(6)
    if what == 5 and op.attrs:
        attr = rng.choice(op.attrs)
        if attr.kind in ("int", "axis"):
            attrs[attr.name] = rng.randint(-4, 4)
        elif attr.kind == "bool":
            attrs[attr.name] = rng.random() < 0.5
        elif attr.kind in ("axes", "ints"):
            attrs[attr.name] = [rng.randint(0 if attr.kind == "ints" else -4, 4) for _ in range(rng.randint(0, 3))]
        elif attr.kind == "choice":
            attrs[attr.name] = rng.choice([*attr.choices, "other"])
        elif attr.kind == "dtype":
            attrs[attr.name] = rng.choice(TYPES)
        return
    if not tensors:
        return
    i = rng.choice(tensors)
    operand = inputs[i]
    if isinstance(operand, list):
        if what == 0:
            inputs[i] = operand + operand[:1]
            return
        k = rng.randrange(len(operand))
        inputs[i] = [*operand[:k], changed(operand[k], what, rng), *operand[k + 1 :]]
    elif what == 4:
        inputs[i] = None
    else:
        inputs[i] = changed(operand, what, rng)


def changed(operand: Operand, what: int, rng: random.Random) -> Operand:
    kind, shape = operand
    sizes = list(shape)
    if what == 0:
        return rng.choice(TYPES), shape
    if what == 1 and sizes:
        sizes[rng.randrange(len(sizes))] = rng.choice([0, 1, 2, 3, 4, 6, 33])
    elif what == 2 and sizes:
        del sizes[rng.randrange(len(sizes))]
    else:
        sizes.insert(rng.randint(0, len(sizes)), rng.choice([1, 2, 5]))
    return kind, tuple(sizes)


def test_changed_samples() -> None:
    rng = random.Random(1)
    counts = [0, 0]
    for case in cases():
        for _ in range(60):
            inputs, attrs = inputs_of(case, rng.choice(["f32", "f64", "bf16"])), dict(case.sample["attrs"])
            for _ in range(rng.randint(1, 3)):
                change(case.op, inputs, attrs, rng)
            counts[compare(case.op, inputs, attrs)] += 1
    assert min(counts) > 500  # good and bad ones


F32 = "f32"
CALLS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("scaled", [(F32, (3, 4)), (F32, ())], {}),
    ("joined", [[(F32, (2, 3)), (F32, (4, 3))]], {}),
    ("joined", [[("i64", (2, 3)), ("i64", (2, 5)), ("i64", (2, 1))]], {"axis": -1}),
    ("step_list", [[(F32, (2, 3)), (F32, (4,))], [(F32, (2, 3)), (F32, (4,))]], {}),
    ("pooled", [(F32, (2, 9))], {"size": 3}),
    ("pooled", [(F32, (2, 9))], {"size": 2, "stride": [3], "out": "bf16"}),
    ("grouped", [(F32, (5, 6)), (F32, (6,))], {"groups": 3, "want_sums": True}),
    ("grouped", [(F32, (5, 6)), None], {"groups": 2, "add": 0.5}),
    ("outer", [(F32, (4, 1, 3)), (F32, (2, 1))], {}),
    ("ordered", [(F32, (4, 1, 3))], {"dims": [2, 0, 1]}),
    ("ordered", [(F32, (4, 2))], {"dims": [-1, 0]}),
    ("halves", [(F32, (3, 8))], {}),
    ("halves_grad", [(F32, (3, 8)), None], {}),
    ("row_spread", [(F32, (3, 8))], {"n": 2}),
    ("nothing", [(F32, (2, 1, 3)), ("f16", (1, 5)), (F32, (4, 1)), (F32, (3,)), ("i32", (4,))], {"want_s": True}),
    ("nothing", [(F32, (2, 5, 3)), ("bf16", (2, 5)), None, None, None], {"lambda": 2}),
]


# Formulas whose inputs all broadcast.
FORMULAS: list[tuple[str, list[Any]]] = [
    ("x + y", [(F32, (3, 1)), (F32, (2, 1, 4))]),
    ("sum(x * y, -1)", [(F32, (3, 1)), (F32, (2, 1, 4))]),
    ("sum(x, -1) * y", [(F32, (3, 1)), (F32, ())]),
    ("x * max(y, -1) - sum(z, -1)", [(F32, (3, 1)), (F32, (2, 1, 4)), (F32, (4,))]),
    ("u = mean(x, -1); v = x - mean(x, -1) + y * z", [(F32, (3, 1)), (F32, (2, 1, 4)), (F32, (4,))]),
]


def test_language(plugin: pathlib.Path) -> None:
    rng = random.Random(2)
    counts = [0, 0]
    calls = [(tenon.ops()[name], inputs, attrs) for name, inputs, attrs in CALLS]
    for op, inputs, attrs in calls + [(fused(text), inputs, {}) for text, inputs in FORMULAS]:
        assert compare(op, inputs, attrs), op.name
        for _ in range(250):
            new_inputs, new_attrs = list(inputs), dict(attrs)
            for _ in range(rng.randint(1, 2)):
                change(op, new_inputs, new_attrs, rng)
            counts[compare(op, new_inputs, new_attrs)] += 1
    assert min(counts) > 500


def test_unknown_and_missing_attributes(plugin: pathlib.Path) -> None:
    ops = tenon.ops()
    with pytest.raises(TypeError, match="no attribute 'axes'"):
        ops["softmax"].infer([(F32, (3,)), None], {"axes": 1})
    with pytest.raises(TypeError, match="groups is missing"):
        ops["grouped"].infer([(F32, (3, 4)), None], {})
    with pytest.raises(ValueError, match="x is missing"):
        ops["softmax"].infer([None, None], {})


def test_strides() -> None:
    assert dense_strides((2, 3, 4)) == (12, 4, 1)
    assert dense_strides((2, 0, 4)) == (4, 4, 1)
    assert is_permuted_dense((2, 3, 4), (12, 4, 1))
    assert is_permuted_dense((2, 3, 4), (1, 8, 2))
    assert is_permuted_dense((2, 1, 4), (4, 99, 1))
    assert not is_permuted_dense((2, 3), (4, 1))
    assert not is_permuted_dense((2, 3), (0, 1))


def test_import_is_cheap_and_needs_no_framework() -> None:
    import subprocess
    import sys

    code = """
import sys, time
start = time.process_time()
import tenon
took = time.process_time() - start
assert not any(name in sys.modules for name in ("torch", "jax", "numpy")), "a framework was imported"
assert tenon.__version__.count(".") == 2 and "softmax" in tenon.ops()
print(took)
"""
    fastest = min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5))
    assert fastest < 0.05


@pytest.mark.parametrize("what", ["nothing", "no library", "another library"])
def test_missing_library_is_explained(tmp_path: pathlib.Path, what: str) -> None:
    import _ctypes
    import os
    import subprocess
    import sys

    library = tmp_path / "libtenon.so"
    if what == "no library":
        library.write_text("not a shared object")
    if what == "another library":
        library.write_bytes(pathlib.Path(_ctypes.__file__).read_bytes())
    run = subprocess.run(
        [sys.executable, "-c", "import tenon"],
        env={**os.environ, "TENON_LIBRARY": str(library)},
        capture_output=True,
        text=True,
    )
    assert run.returncode != 0 and "ImportError" in run.stderr and "make build" in run.stderr
    assert str(library) in run.stderr


def test_a_library_without_the_program_beside_it(tmp_path: pathlib.Path) -> None:
    import os
    import shutil
    import subprocess
    import sys

    library = shutil.copy(tenon.lib._name, tmp_path)
    env = {**os.environ, "TENON_LIBRARY": library}
    run = subprocess.run([sys.executable, "-m", "tenon", "ops"], env=env, capture_output=True, text=True)
    assert run.returncode == 1
    assert (
        run.stderr
        == f"tenon: {tmp_path}/tenon, the program beside the library, cannot be run: No such file or directory\n"
    )


def test_load_reports_a_bad_file(tmp_path: pathlib.Path) -> None:
    bad = tmp_path / "bad.so"
    bad.write_text("not a shared object")
    with pytest.raises(tenon.TenonError, match="not a shared object"):
        tenon.load(bad)
