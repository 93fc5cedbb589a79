"""x * x, its gradient, and the gradient of that.

    pip install torch
    PYTHONPATH=python python examples/torch/square.py [--device cuda]

Replaces the kernel that the tutorials on load_inline compile for half a minute. `tn.square` is a row of the table; a
formula of your own is a line: tn.fuse("x * x"). Neither is compiled by anything that has to be installed.
"""

from __future__ import annotations

import argparse
import time

import torch

import tenon.torch as tn


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu")
    device = arguments.parse_args().device

    x = torch.tensor([-1.5, 0.0, 2.0], device=device, dtype=torch.float64, requires_grad=True)
    begin = time.perf_counter()
    square = tn.fuse("x * x")
    y = square(x)
    print(f"from the text to the first result: {(time.perf_counter() - begin) * 1e3:.1f} ms")
    (dx,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (ddx,) = torch.autograd.grad(dx.sum(), x)
    print(f"x   {x.tolist()}\ny   {y.tolist()}\ndx  {dx.tolist()}\nddx {ddx.tolist()}")
    assert torch.equal(y, x * x) and torch.equal(dx, 2 * x) and torch.equal(ddx, torch.full_like(x, 2))
    assert torch.equal(tn.square(x), y)
    assert torch.autograd.gradcheck(tn.square, x) and torch.autograd.gradgradcheck(tn.square, x)


if __name__ == "__main__":
    main()
