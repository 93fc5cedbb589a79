"""What `make demo` shows: a model trained on digits; the same formulas in every framework that is installed, on the GPU
where there is one; operators from C and from PyTorch. All of it is checked against float64 and timed beside what one
would use otherwise."""

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
    command = ["cc", "-O3", "-D_GNU_SOURCE", "-Iinclude", "-Ibuild/include", str(source), "-o", str(program)]
    command += ["-Lbuild", "-ltenon", f"-Wl,-rpath,{ROOT / 'build'}", "-lm"]
    subprocess.run(command, cwd=ROOT, check=True)
    printed = subprocess.run([program], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    rows: list[Row] = []
    for line in printed.splitlines():
        op, _shape, kernel, error, ours, plain = line.split("\t")
        rows.append((op, "C", f"cpu ({kernel})", float(error), float(ours), float(plain), "a C loop, cc -O3"))
    return rows


def milliseconds(call: Callable[[Any], object], inputs: object) -> float:
    import torch

    begin = time.perf_counter()
    call(inputs)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3


def torch_row(name: str, ours: Callable[[Any], Any], theirs: Callable[[Any], Any], inputs: Any, peer: str) -> Row:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    here = {key: value.to(device) for key, value in inputs.items()}
    with torch.no_grad():
        exact = theirs({key: value.double() if value.is_floating_point() else value for key, value in here.items()})
        for _ in range(3):  # a formula that is used often is compiled meanwhile
            got = ours(here).double()
            time.sleep(0.2)
        error = ((got - exact).abs() / exact.abs().clamp(min=1)).max().item()
        turns = [(milliseconds(ours, here), milliseconds(theirs, here)) for _ in range(15)]
    mine, other = (statistics.median(side) for side in zip(*turns, strict=True))
    return name, "PyTorch", device, error, mine, other, peer


def torch_rows() -> list[Row]:
    import torch

    sys.path.insert(0, str(ROOT / "bench"))
    from peers import OPERATORS, make
    from run import SHAPES

    torch.manual_seed(0)
    rows = []
    for op, shapes in SHAPES.items():
        peer = OPERATORS[op]
        inputs = make(peer.inputs, shapes[2], torch.float32)
        ours, theirs = (lambda i, p=peer, o=op: p.ours(o, i)()), (lambda i, p=peer: p.theirs(i)())
        rows.append(torch_row(op, ours, theirs, inputs, "PyTorch's own"))
    return rows


def formula_rows() -> list[Row]:
    """A line of text against PyTorch's operators one after the other."""
    import torch
    import torch.nn.functional as F

    import tenon.torch as tn

    def inputs(*names: str) -> dict[str, torch.Tensor]:
        shapes = {"s": (2048,), "b": (2048,), "g": (2048,)}
        return {name: torch.randn(*shapes.get(name, (2048, 2048))) for name in names}

    unfused: dict[str, Callable[[dict[str, torch.Tensor]], torch.Tensor]] = {
        "relu(x * s + b)": lambda i: torch.relu(i["x"] * i["s"] + i["b"]),
        "silu(x) * y": lambda i: F.silu(i["x"]) * i["y"],
        "x * tanh(softplus(x))": lambda i: i["x"] * torch.tanh(F.softplus(i["x"])),
        "x * rsqrt(mean(x * x, -1) + 1e-6) * g": lambda i: (
            i["x"] * torch.rsqrt((i["x"] * i["x"]).mean(-1, keepdim=True) + 1e-6) * i["g"]
        ),
    }
    rows = []
    torch.manual_seed(0)
    for formula, theirs in unfused.items():
        fused = tn.fuse(formula)
        given = inputs(*(name for name in ("x", "y", "s", "b", "g") if re.search(rf"\b{name}\b", formula)))
        rows.append(torch_row(formula, lambda i, f=fused: f(**i), theirs, given, "PyTorch, unfused"))
    return rows


def show(rows: list[Row]) -> None:
    width = max(len(row[0]) for row in rows)
    print(f"  {'':<{width}} {'framework':<10} {'device':<12}     error      tenon       peer   ratio  the peer is")
    for op, framework, device, error, ours, theirs, peer in rows:
        times = f"{ours:>7.3f} ms {theirs:>7.3f} ms {theirs / ours:>6.1f}x"
        print(f"  {op:<{width}} {framework:<10} {device:<12} {error:>9.1e} {times}  {peer}")


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
        print("No PyTorch 2.10 or newer here, and a demo installs nothing that big.\n")
        print("The same model, with Tenon's operators and with plain NumPy:")
        sys.path.insert(0, str(ROOT / "examples" / "numpy"))
        import digits

        digits.main()
    import frameworks

    print("\nThe same formulas in every framework found here:")
    frameworks.main()
    from_c = c_rows()
    print("\nMore formulas, each an operator with its gradient from this one line:")
    show([row for row in from_c if "(" in row[0]] + (formula_rows() if has_torch else []))
    print("\nOperators with kernels of their own:")
    show([row for row in from_c if "(" not in row[0]] + (torch_rows() if has_torch else []))
    print("  error: the largest difference from float64, relative where the result is above 1. f32 data.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
