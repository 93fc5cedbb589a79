"""The sum of a tensor, of its rows and of its columns.

    pip install torch
    PYTHONPATH=python python examples/torch/sum.py [--device cuda]

Replaces the reduction kernel of the textbooks: a tree in shared memory, a second launch for what the blocks found or an
atomicAdd, which gives other bits at each run. `tn.sum` takes any axes, adds in f32 or wider, always in the same order,
and has its gradient.
"""

from __future__ import annotations

import argparse

import torch

import tenon.torch as tn


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu")
    device = arguments.parse_args().device

    torch.manual_seed(0)
    x = torch.randn(1000, 3001, device=device, requires_grad=True)
    exact = x.detach().double()
    for axes in ((), (0,), (1,)):
        have, want = tn.sum(x, axes), exact.sum(axes or None)
        error = (have - want).abs().max().item()
        same = all(torch.equal(tn.sum(x, axes), have) for _ in range(10))
        name = {(): "everything", (0,): "columns", (1,): "rows"}[axes]
        print(f"{name:<11} {list(have.shape)!s:<7} off by at most {error:.1e}; the same bits ten times: {same}")
        assert error < 1e-2 and same

    (dx,) = torch.autograd.grad(tn.sum(x, (1,)).square().sum(), x)
    torch.testing.assert_close(dx, 2 * x.detach().sum(1, keepdim=True).expand_as(x), rtol=1e-3, atol=1e-3)
    print("the gradient of the rows is what PyTorch's is")


if __name__ == "__main__":
    main()
