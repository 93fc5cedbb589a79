"""ReLU and its gradient.

    pip install torch
    PYTHONPATH=python python examples/torch/relu.py [--device cuda]

Replaces two kernels (`y = max(x, 0)` and `dx = x > 0 ? dy : 0`), their wrappers and an autograd Function that saves x
for the second one. `tn.relu` has a derived gradient, works under torch.compile, and `tn.nn.ReLU` is the module.
"""

from __future__ import annotations

import argparse

import torch

import tenon.torch as tn


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu")
    device = arguments.parse_args().device

    x = torch.linspace(-2, 2, 5, device=device, requires_grad=True)
    y = tn.relu(x)
    (dx,) = torch.autograd.grad(y.sum(), x)
    print(f"x        {x.tolist()}\nrelu(x)  {y.tolist()}\ngradient {dx.tolist()}")
    assert torch.equal(y, torch.relu(x))
    assert dx.tolist() == [0, 0, 0, 1, 1]

    # In the middle of a compiled model, with NaN as IEEE has it.
    compiled = torch.compile(lambda t: tn.relu(t * 2) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), torch.relu(x * 2) + 1)
    assert tn.relu(torch.tensor([float("nan")], device=device)).isnan().all()
    print("compiled into a graph, the same")


if __name__ == "__main__":
    main()
