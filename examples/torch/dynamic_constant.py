"""Adds a constant that changes at run time, without compiling again; on CUDA inside a captured graph.

    pip install torch
    PYTHONPATH=python python examples/torch/dynamic_constant.py [--device cuda]

Replaces an extension that keeps its constant in `__constant__` memory and sets it by cudaMemcpyToSymbol. A tn.Param is
a number in the device's memory: one call sets it, in the order of the stream, and every operator takes it where it
takes a 0-dim tensor.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

import tenon.torch as tn

add = tn.fuse("add_dynamic(x: T[*s], c: f32[]) -> y: T[*s] : x + c")


def capture(x: Tensor, c: tn.Param) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A CUDA graph of one addition, and where it writes."""
    add(x, c)  # a formula is compiled at its first call, which cannot be inside of a capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = add(x, c)
    return graph, y


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu")
    device = arguments.parse_args().device

    x = torch.zeros(4, device=device)
    c = tn.Param(0.0, device=device)
    for value in (1.0, -2.5, 1e6):
        c.set(value)
        y = add(x, c)
        print(f"c = {value:>9}:  x + c = {y.tolist()}")
        assert torch.equal(y, x + value)

    if device.startswith("cuda"):
        graph, y = capture(x, c)
        for value in (3.0, 4.0, 5.0):
            c.set(value)
            graph.replay()
            print(f"replayed with c = {value}:  {y.tolist()}")
            assert torch.equal(y, x + value)
    else:
        print("with --device cuda the same is done inside of a captured graph")


if __name__ == "__main__":
    main()
