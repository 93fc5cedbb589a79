"""The custom call that XLA runs: one for all operators (adapters/jax/jax.c), and JAX's primitive, which is one too.

On a GPU it has a second name, of calls that XLA may capture in a command buffer, a CUDA graph. What such a call needs
of memory, it must have from the beginning: it is one result more, whose size the C library says when the program is
lowered. Programs that go to a file may run on another GPU, and have the plain call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from tenon._lib import lib
from tenon.contract import Attr, Operator
from tenon.jax import _mesh, _vmap
from tenon.jax._form import Arrays, Form
from tenon.jax._types import DTYPES, X64

_PLAIN, _CAPTURED = "tenon", "tenon_graph"  # names of the custom call
_CUDA = 2  # as DLPack numbers kinds of devices
_call: Any = Primitive("tenon")
_call.multiple_results = True


def register() -> None:
    """Tells XLA what runs the custom call."""
    for name, platform, function in (
        (_PLAIN, "cpu", lib.tn_jax_cpu),
        (_PLAIN, "CUDA", lib.tn_jax_cuda),
        (_CAPTURED, "CUDA", lib.tn_jax_cuda_graph),
    ):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform=platform)


# ---- what a call is told and what it returns -------------------------------------------------------------------------


def _ffi_value(op: Operator, attr: Attr, value: Any) -> Any:
    """An attribute as XLA takes it."""
    sizes = value if attr.kind in ("axes", "ints") else (value,)
    if any(jax.export.is_symbolic_dim(n) for n in sizes):
        message = "a constant of the compiled program, would be a symbolic size; export with that size fixed"
        raise NotImplementedError(f"{op.name}: {attr.name}, {message}")
    if attr.kind in ("axes", "ints"):
        return np.array(value, np.int64)
    return float(value) if attr.kind == "float" else value


def _attributes(form: Form) -> dict[str, Any]:
    op = form.row.op
    attrs = {a.name: a for a in op.attrs}
    given = {name: _ffi_value(op, attrs[name], value) for name, value in form.attrs}
    return {**form.row.named, **given, "_counts": np.array(form.counts, np.int64)}


def _specs(form: Form, arrays: Arrays) -> list[tuple[Any, Any]]:
    """Shapes and types of the results: outputs that were asked for, then updated arrays."""
    op = form.row.op
    made = []
    for output, spec in zip(op.outputs, form.row.infer(form.operands(arrays), dict(form.attrs)), strict=True):
        if spec is None:
            continue
        dtype = np.dtype(DTYPES[spec[0]])
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise TypeError(f"{op.name}: {output.name} has type {spec[0]}; {X64.format(dtype)}")
        made.append((spec[1], dtype))
    return made + [(arrays[i].shape, arrays[i].dtype) for i in form.updated()]


def _aliases(form: Form, n_results: int) -> dict[int, int]:
    """By argument, the result that is its update."""
    updated = form.updated()
    return {i: n_results - len(updated) + k for k, i in enumerate(updated)}


# ---- JAX's primitive -------------------------------------------------------------------------------------------------


def run(form: Form, arrays: Arrays) -> tuple[Any, ...]:
    """Outputs that were asked for, then updated arrays."""
    return tuple(_call.bind(*arrays, form=form))


def _run_now(*arrays: Any, form: Form) -> Any:
    """Without jit, which jax_debug_nans and jax_debug_infs leave out where they have found something."""
    results = [jax.ShapeDtypeStruct(*spec) for spec in _specs(form, arrays)]
    call = jax.ffi.ffi_call(_PLAIN, results, input_output_aliases=_aliases(form, len(results)))
    try:
        return call(*arrays, **_attributes(form))
    except FloatingPointError as error:
        raise FloatingPointError(f"{form.row.op.name}: {error}") from None


def _batched(arrays: Arrays, places: Sequence[Any], *, form: Form) -> tuple[Sequence[Any], list[int]]:
    """A batch of calls. `places`: the dimension of each array that is the batch, None where it has none."""
    is_batched = [place is not None for place in places]
    given = [a if place is None else jnp.moveaxis(a, place, 0) for a, place in zip(arrays, places, strict=True)]
    batches = [a for a, b in zip(given, is_batched, strict=True) if b]
    whole = [_mesh.gathered(a) for a in given]
    merged = _vmap.merge(form, batches[0].shape[0], is_batched, whole)
    if merged is None:
        results = _vmap.one_by_one(lambda *one: run(form, one), is_batched, whole)
    else:
        made = run(merged.form, merged.arrays)
        results = [jnp.reshape(r, shape) for r, shape in zip(made, merged.shapes, strict=True)]
    return _mesh.scattered(results, batches), [0] * len(results)


def _infer(*arrays: Any, form: Form) -> list[Any]:
    _attributes(form)  # or what is wrong with them
    like = _mesh.like(arrays)
    return [jax.core.ShapedArray(shape, dtype, **like) for shape, dtype in _specs(form, arrays)]


def _lower(ctx: Any, *operands: Any, form: Form) -> Any:
    rule = jax.ffi.ffi_lowering(_PLAIN, operand_output_aliases=_aliases(form, len(ctx.avals_out)))
    return rule(ctx, *operands, **_attributes(form))


def _refuse_platform(ctx: Any, *operands: Any, form: Form) -> Any:
    """A program for any other platform would hold a call that nothing there can run."""
    known = ("cpu", "cuda")
    names = ", ".join(p for p in ctx.platforms or ctx.module_context.platforms if p not in known)
    raise NotImplementedError(f"{form.row.op.name}: Tenon has kernels for {' and '.join(known)}, none for {names}")


def _lower_for_gpu(ctx: Any, *operands: Any, form: Form) -> Any:
    scratch = _scratch(ctx, form)
    if scratch is None:
        return _lower(ctx, *operands, form=form)
    n_results = len(ctx.avals_out)
    if scratch:
        ctx = ctx.replace(avals_out=[*ctx.avals_out, jax.core.ShapedArray((scratch,), np.dtype(np.uint8))])
    rule = jax.ffi.ffi_lowering(_CAPTURED, operand_output_aliases=_aliases(form, n_results))
    return rule(ctx, *operands, **_attributes(form), _scratch=scratch > 0)[:n_results]


def _scratch(ctx: Any, form: Form) -> int | None:
    """The bytes that a call which is captured needs for itself; None: it cannot be."""
    parameters = getattr(ctx.module_context, "lowering_parameters", None)
    if getattr(parameters, "for_export", True):
        return None
    if any(jax.export.is_symbolic_dim(n) for aval in ctx.avals_in for n in aval.shape):
        return None
    try:
        gpu = jax.local_devices(backend="cuda")[0].local_hardware_id  # those of a process are of one kind
        return form.row.workspace(form.operands(ctx.avals_in), dict(form.attrs), (_CUDA, gpu or 0))
    except (RuntimeError, NotImplementedError):  # no GPU here, or no kernel: whoever runs it is told
        return None


_call.def_impl(_run_now)
_call.def_abstract_eval(_infer)
batching.primitive_batchers[_call] = _batched
mlir.register_lowering(_call, _refuse_platform)
mlir.register_lowering(_call, _lower, platform="cpu")
mlir.register_lowering(_call, _lower_for_gpu, platform="cuda")
