"""Kernels as text: ``add = tenon.kernel("add(x: T[n], c: float) -> y: T[n]", cuda="__global__ void add(…) {…}")``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import tenon
from tenon import _lib
from tenon.contract import Operator, table

# Where a value comes from says which front end takes it.
_FRONT_ENDS = {
    "torch": "tenon.torch",
    "jax": "tenon.jax",
    "jaxlib": "tenon.jax",
    "flax": "tenon.jax",
    "tensorflow": "tenon.tensorflow",
    "keras": "tenon.tensorflow",
    "numpy": "tenon.numpy",
    "cupy": "tenon.numpy",
}


class Kernel:
    """An operator that was given as text. It takes tensors of PyTorch, JAX, TensorFlow, NumPy and CuPy: each goes to
    the function of its front end, `tn.NAME`, with gradient, compilers and streams as there."""

    def __init__(self, name: str, address: int, gradient: Kernel | None) -> None:
        self.name = name
        self._address = address
        self._gradient = gradient
        self._functions: dict[str, Callable[..., Any]] = {}

    @property
    def op(self) -> Operator:
        """Its row of the table."""
        return table()[self.name]

    def __repr__(self) -> str:
        return f"<tenon.kernel {self.op.signature}>"

    def __call__(self, *args: Any, **named: Any) -> Any:
        for value in (*args, *named.values()):
            root = type(value).__module__.partition(".")[0]
            function = self._functions.get(root)
            if function is not None:
                return function(*args, **named)
        return self._function(args, named)(*args, **named)

    def _function(self, args: Sequence[Any], named: dict[str, Any]) -> Callable[..., Any]:
        """The front end's function for these arguments."""
        for value in (*args, *named.values()):
            root = type(value).__module__.partition(".")[0]
            if root in _FRONT_ENDS:
                self._functions[root] = self._function_of(_FRONT_ENDS[root])
                return self._functions[root]
        if any(hasattr(value, "__dlpack__") for value in args):
            return self._function_of("tenon.numpy")
        kinds = ", ".join(type(value).__name__ for value in args) or "nothing"
        raise TypeError(
            f"{self.name}: no tensor of PyTorch, JAX, TensorFlow, NumPy or CuPy among its arguments: {kinds}"
        )

    def _function_of(self, module: str) -> Callable[..., Any]:
        front_end = import_module(module)  # which brings in what is shared
        from tenon._public import defined

        return defined(vars(front_end), self.name)

    def text(self) -> str:
        """The kernel as the text of a file, with the one that is its gradient."""
        before = "" if self._gradient is None else self._gradient.text()
        return before + _lib.kernel_text(self._address)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file that `tenon.load`, `tenon --load` and TENON_PLUGINS take."""
        Path(path).write_text(self.text(), encoding="utf-8")

    def check(self, *options: str) -> None:
        """Checks it as `tenon check` does, and prints what that says; raises where something is wrong."""
        self._run("check", "--only-loaded", *options)

    def bench(self, *options: str) -> None:
        """Measures it as `tenon bench` does, and prints the table."""
        self._run("bench", self.name, *options)

    def tune(self, *options: str) -> None:
        """Finds the best values of what the text leaves open with `TN_TUNE(BLOCK, 128, 256)`, as `tenon tune` does, and
        prints the table that belongs into the text."""
        self._run("tune", self.name, *options)

    def _run(self, *words: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"{self.name}.tenon")
            self.save(path)
            command = [sys.executable, "-m", "tenon", "--load", str(path), *words]
            done = subprocess.run(command, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name}: `tenon {words[0]}` found something wrong; it is printed above")


def _grad_rule(gradient: Kernel) -> str:
    """The rule that calls another kernel, whose outputs are d<input>."""
    op = gradient.op
    wanted = [output.name.removeprefix("d") for output in op.outputs]
    if any(not output.name.startswith("d") for output in op.outputs):
        raise ValueError(f"{gradient.name}: as a gradient its outputs are called d<input>, as dx: {op.signature}")
    return f"{', '.join(wanted)}: {gradient.name}({', '.join(i.name for i in op.inputs)})"


def kernel(
    signature: str,
    *,
    cuda: str | None = None,
    cpu: str | None = None,
    formula: str | None = None,
    grad: str | Kernel | None = None,
    launch: str | None = None,
    samples: Sequence[str] = (),
    doc: str | None = None,
    file: str | None = None,
    options: Sequence[str] = (),
) -> Kernel:
    """An operator from the text of a kernel, in every framework: what is returned takes their tensors, and `tn.NAME` is
    there in every `import tenon.… as tn`.

        plus = tenon.kernel(
            "plus_constant(x: f32[*s], c: float) -> y: f32[*s]",
            cuda='''
            __global__ void plus_constant(const float *x, float c, float *y, long long x_count) {
                long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
                if (i < x_count) y[i] = x[i] + c;
            }''',
            formula="x + c",
        )
        y = plus(torch.ones(5, device="cuda"), 2.0)

    signature  the contract: inputs, attributes, outputs (`tenon help contract`)
    cuda       CUDA C with a `__global__` function. Its parameters go by their names: inputs and outputs are pointers,
               attributes and dimensions are numbers; <tensor>_count, rows, columns and scratch are there too
    launch     "elements" (a thread for each element of the first output), "elements(4)", "rows" (a block for each row
               of the first input), "rows(warp)", "tiles(16, 16)", or "grid=(…) block=(…) shared=… cluster=… scratch=…"
               with numbers of dimensions; several kernels one after the other: "first: rows; second: grid=1"
    cpu        C with a function of the same kind, or a formula; without both, and without `formula`, the operator runs
               on GPUs only
    formula    what it computes: the reference that it is checked with, the CPU's kernel, and the gradient
    grad       a formula ("dx = dy * c"), another kernel with outputs dx …, or a rule ("x: add_grad(x, dy)")
    samples    calls to check with ("n=33 c=0.5"); some are made up without
    options    for NVRTC ("--use_fast_math")

    The text is compiled when it is first called, for each type that it is called with, and kept in the cache.
    """
    if cpu is not None and "{" not in cpu:
        if formula is not None:
            raise ValueError("cpu is a formula, and formula is given too; leave one of them out")
        cpu, formula = None, cpu
    gradient = grad if isinstance(grad, Kernel) else None
    rule = _grad_rule(grad) if isinstance(grad, Kernel) else grad
    address, name = _lib.define(
        {
            "signature": signature,
            "doc": doc,
            "formula": formula,
            "grad": rule,
            "samples": "\n".join(samples) or None,
            "cuda": cuda,
            "cpu": cpu,
            "launch": launch,
            "file": file,
            "options": " ".join(options) or None,
        }
    )
    wanted = signature.strip().partition("(")[0].partition("<")[0].strip()
    if wanted != name or wanted in tenon._newest:
        tenon._newest[wanted] = name
    for refresh in tenon._adapters:
        refresh()
    return Kernel(name, address, gradient)
