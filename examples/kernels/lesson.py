"""What the lessons share: their options, the comparison with PyTorch in float64, and the table.

pip install torch
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import tenon

# A tensor is given by its shape, everything else as it is: ((4, 8), 2.5) are a tensor and a number.
Case = Sequence[Any]
Function = Callable[..., torch.Tensor]

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
# Errors that rounding explains, as a part of the largest number in the result.
MOST_ERROR = {"f32": 2e-5, "f16": 2e-3, "bf16": 2e-2, "f64": 1e-12}
EDGE = {"cpu": 256, "cuda": 4096}  # of what is timed


@dataclass(frozen=True)
class Positive:
    """A tensor of positive numbers."""

    shape: tuple[int, ...]


def arguments(case: Case, dtype: torch.dtype, device: str) -> list[Any]:
    """Random tensors and the numbers of a case."""
    random = torch.Generator().manual_seed(len(case))
    made: list[Any] = []
    for value in case:
        if isinstance(value, tuple):
            made.append(torch.randn(value, generator=random, dtype=torch.float64).to(device, dtype))
        elif isinstance(value, Positive):
            made.append(torch.rand(value.shape, generator=random, dtype=torch.float64).add(0.5).to(device, dtype))
        else:
            made.append(value)
    return made


def is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference, as a part of the largest number; 0 where there are none."""
    assert got.shape == wanted.shape, (got.shape, wanted.shape)
    if not got.numel():
        return 0.0
    return float((got.double() - wanted).abs().max() / wanted.abs().max().clamp(min=1))


def gradients(function: Function, args: Sequence[Any], dy: torch.Tensor) -> list[torch.Tensor]:
    leaves = [a.detach().requires_grad_() if is_float(a) else a for a in args]
    y = function(*leaves)
    return list(torch.autograd.grad(y, [a for a in leaves if is_float(a)], dy.to(y.dtype)))


def compare(kernel: Function, plain: Function, args: Sequence[Any], differentiable: bool) -> float:
    """The largest error of the kernel and its gradients against float64."""
    exact = [a.double() if is_float(a) else a for a in args]
    wanted = plain(*exact)
    worst = error(kernel(*args), wanted)
    if differentiable:
        random = torch.Generator().manual_seed(7)
        dy = torch.randn(wanted.shape, generator=random, dtype=torch.float64)
        dy = dy.to(wanted.device, args[0].dtype).double()  # a gradient that the type can hold
        pairs = zip(gradients(kernel, args, dy), gradients(plain, exact, dy), strict=True)
        worst = max([worst, *(error(got, exact_gradient) for got, exact_gradient in pairs)])
    return worst


def microseconds(function: Function, args: Sequence[Any]) -> float:
    """The shortest time of a call."""
    function(*args)
    times = []
    if args[0].is_cuda:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(20):
            torch.cuda.synchronize()
            begin.record()
            for _ in range(10):
                function(*args)
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 100)
    else:
        for _ in range(5):
            start = time.perf_counter()
            function(*args)
            times.append((time.perf_counter() - start) * 1e6)
    return min(times)


def shape_of(args: Sequence[Any]) -> str:
    return ", ".join(str(list(a.shape)) if isinstance(a, torch.Tensor) else str(a) for a in args)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *cells]))


def main(
    kernels: Sequence[tenon.Kernel],
    plain: Function,
    cases: Sequence[Case],
    timed: Callable[[int], Case],
    *,
    beside: Mapping[str, Function],
    types: Sequence[str] = tuple(TYPES),
    differentiable: bool = True,
) -> str:
    """The program of a lesson; returns the device.

    kernels  what is taught; all of them compute the same
    plain    what they must compute, in PyTorch
    cases    what they are checked with
    timed    the case that is timed, of an edge length
    beside   what they are timed beside
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--check", action="store_true", help="what `tenon check` says")
    parser.add_argument("--bench", action="store_true", help="what `tenon bench` measures")
    options = parser.parse_args()
    device: str = options.device

    print(f"{', '.join(kernel.name for kernel in kernels)} on {device}: the largest error against float64")
    rows = [["", *types]]
    for case in cases:
        rows.append([shape_of(arguments(case, torch.float32, device))])
        for name in types:
            args = arguments(case, TYPES[name], device)
            worst = max(compare(kernel, plain, args, differentiable) for kernel in kernels)
            assert worst <= MOST_ERROR[name], f"{shape_of(args)} in {name}: an error of {worst}"
            rows[-1].append(f"{worst:.1e}")
    print_table(rows)

    functions: dict[str, Function] = {**{kernel.name: kernel for kernel in kernels}, **beside}
    timed_case = timed(EDGE[device])
    print(f"\nmicroseconds for {shape_of(arguments(timed_case, torch.float32, device))}")
    rows = [["", *functions]]
    for name in types:
        args = arguments(timed_case, TYPES[name], device)
        rows.append([name, *(f"{microseconds(f, args):.1f}" for f in functions.values())])
    print_table(rows)

    for kernel in kernels:
        if options.check:
            kernel.check("--device", device)
        if options.bench:
            kernel.bench("--device", device)
    return device
