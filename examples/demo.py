"""What `make demo` shows: each operator from C and from PyTorch, checked against float64 and timed beside its peer; a
model trained on digits. PyTorch's part is left out where it is not installed."""

from __future__ import annotations

import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Row = tuple[str, str, str, float, float, float, str]


def c_rows() -> list[Row]:
    """Builds examples/c/operators.c against build/libtenon.so and runs it."""
    program = ROOT / "build" / "examples" / "operators"
    program.parent.mkdir(parents=True, exist_ok=True)
    source = ROOT / "examples" / "c" / "operators.c"
    command = ["cc", "-O2", "-D_GNU_SOURCE", "-Iinclude", "-Ibuild/include", str(source), "-o", str(program)]
    command += ["-Lbuild", "-ltenon", f"-Wl,-rpath,{ROOT / 'build'}", "-lm"]
    subprocess.run(command, cwd=ROOT, check=True)
    printed = subprocess.run([program], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    rows: list[Row] = []
    for line in printed.splitlines():
        op, _shape, kernel, error, ours, plain = line.split("\t")
        rows.append((op, "C", f"cpu ({kernel})", float(error), float(ours), float(plain), "plain C reference"))
    return rows


def milliseconds(call: Callable[[Any], object], inputs: object) -> float:
    begin = time.perf_counter()
    call(inputs)
    return (time.perf_counter() - begin) * 1e3


def torch_rows() -> list[Row]:
    import torch

    sys.path.insert(0, str(ROOT / "bench"))
    from peers import PEERS, double

    rows: list[Row] = []
    for peer in PEERS:
        torch.manual_seed(0)
        inputs = peer.make(peer.shapes[2], torch.float32)
        with torch.no_grad():
            exact = peer.theirs(double(inputs))
            got = peer.ours(inputs).double()
            error = ((got - exact).abs() / exact.abs().clamp(min=1)).max().item()
            turns = [(milliseconds(peer.ours, inputs), milliseconds(peer.theirs, inputs)) for _ in range(15)]
        ours, theirs = (statistics.median(side) for side in zip(*turns, strict=True))
        rows.append((peer.op, "PyTorch", "cpu", error, ours, theirs, "PyTorch's own"))
    return rows


def show(rows: list[Row]) -> None:
    print(f"  {'operator':<14} {'framework':<10} {'device':<12}     error      tenon       peer   ratio  the peer is")
    for op, framework, device, error, ours, theirs, peer in rows:
        times = f"{ours:>7.3f} ms {theirs:>7.3f} ms {theirs / ours:>6.1f}x"
        print(f"  {op:<14} {framework:<10} {device:<12} {error:>9.1e} {times}  {peer}")
    print("  error: the largest difference from float64, relative where the result is above 1. f32 data.")


def torch_is_new_enough() -> bool:
    try:
        return [int(n) for n in re.findall(r"\d+", version("torch"))[:2]] >= [2, 10]
    except PackageNotFoundError:
        return False


def main() -> int:
    has_torch = torch_is_new_enough()
    print(f"\nTenon on {platform.machine()}, Python {platform.python_version()} ({sys.executable})")
    if has_torch:
        import torch

        print(f"PyTorch {torch.__version__} found.\n\nThe same model, with Tenon's operators and with PyTorch's own:")
        sys.path.insert(0, str(ROOT / "examples" / "torch"))
        import digits

        digits.main()
    else:
        print("No PyTorch 2.10 or newer here, and a demo installs nothing that big: the operators run from plain C.")
    print("\nThe operators:")
    show(c_rows() + (torch_rows() if has_torch else []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
