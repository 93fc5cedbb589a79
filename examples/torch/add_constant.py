"""Adds a constant to every element of a tensor, into a tensor that is there already.

    pip install torch
    PYTHONPATH=python python examples/torch/add_constant.py [--device cuda]

Replaces the first CUDA extension that everybody writes: a kernel `out[i] = in[i] + c`, a C++ function that checks the
tensors and launches it, and a build. `tn.add_constant` is a row of Tenon's table; the CPU, 16-bit types, strides and
the messages come with it.
"""

from __future__ import annotations

import argparse

import torch

import tenon.torch as tn


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu")
    device = arguments.parse_args().device

    x = torch.arange(6.0, device=device).reshape(2, 3)
    out = torch.empty_like(x)
    tn.add_constant(x, 2.5, out=out)
    print(f"x + 2.5 on {device}:\n{out}")
    assert torch.equal(out, x + 2.5)

    # Any strides and any floating type, and no copy to make them fit.
    every_other = torch.randn(4, 8, device=device, dtype=torch.bfloat16)[:, ::2]
    assert torch.equal(tn.add_constant(every_other, 1.0), every_other + 1.0)
    print("strided bf16: the same as PyTorch's x + c")

    try:
        tn.add_constant(x, 2.5, out=torch.empty(3, device=device))
    except ValueError as error:
        print(f"a wrong output is explained: {error}")
    else:
        raise AssertionError("a wrong output was taken")


if __name__ == "__main__":
    main()
