"""Inference in Python says what inference in C says: on all samples, and on calls changed at random, good and bad."""

from __future__ import annotations

import ctypes
import pathlib
import random
from collections.abc import Sequence
from typing import Any

import pytest
from cases import every_sample
from reference import make_args

import tenon
from tenon._frame import make_tensor, type_name
from tenon._lib import last_error, lib
from tenon._structs import CPU, TYPE_COUNT, Args, Spec, Tensor
from tenon.contract import Operand, Operator, attribute_text, attribute_words, dense_strides, fused, is_permuted_dense

TYPES = [type_name(number) for number in range(1, TYPE_COUNT)]
lib.tn_infer.argtypes = [ctypes.c_void_p, ctypes.POINTER(Args), ctypes.POINTER(Spec)]


def c_tensor(operand: Operand | None) -> Tensor | None:
    return None if operand is None else make_tensor(0, (CPU, 0), *operand, None)


def infer_in_c(op: Operator, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[Operand | None] | str:
    """The outputs, or the message."""
    parts = [(a or []) if p.list else [a] for p, a in zip(op.inputs, inputs, strict=True)]
    args = make_args(op, [[c_tensor(operand) for operand in part] for part in parts], attrs)
    specs = (Spec * len(op.outputs))()
    if lib.tn_infer(op.address, args, specs) != 0:
        return last_error()
    return [(type_name(s.type), tuple(s.shape[: s.ndim])) if s.present else None for s in specs]


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


@pytest.mark.parametrize("case", every_sample(), ids=str)
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
    for case in every_sample():
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
    ("x * max(y, axis=-1) - sum(z, -1)", [(F32, (3, 1)), (F32, (2, 1, 4)), (F32, (4,))]),
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


def test_attributes_as_text() -> None:
    told = {"axes": attribute_text("axes", (1, -3)), "mode": attribute_text("str", "a b"), "none": "[]", "eps": "1e-05"}
    assert told["axes"] == "[1, -3]"
    assert dict(attribute_words(" ".join(f"{name}={text}" for name, text in told.items()))) == told


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
import tenon; tenon.__version__
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
        [sys.executable, "-c", "import tenon; tenon.ops()"],
        env={**os.environ, "TENON_LIBRARY": str(library)},
        capture_output=True,
        text=True,
    )
    assert run.returncode != 0 and "ImportError" in run.stderr and "unset TENON_LIBRARY" in run.stderr
    assert str(library) in run.stderr


def test_a_library_without_the_program_beside_it(tmp_path: pathlib.Path) -> None:
    import os
    import shutil
    import subprocess
    import sys

    library = shutil.copy(tenon._lib.lib._name, tmp_path)
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
