"""Attention beside PyTorch's, with cuDNN and with flash-attention 2:  python bench/attention.py [--quick] [FORM …]

FORM: b,hq,hk,m,n,d or several of them. Replayed graphs of the forward pass, and of forward and backward, taking turns,
on random numbers; TFLOP/s count the pairs that a causal call has. Needs a GPU. Writes
bench/results/attention-cuda-<machine>-<date>.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import tenon.torch as tn
from gpu import device_us, keep_busy
from run import environment, write_result

FORMS = [
    (4, 16, 16, 4096, 4096, 128),
    (16, 16, 16, 1024, 1024, 128),
    (1, 16, 16, 16384, 16384, 128),
    (4, 32, 32, 2048, 2048, 64),
    (2, 32, 32, 8192, 8192, 64),
    (4, 32, 8, 4096, 4096, 128),
]
PEERS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
Call = Callable[[], object]


def theirs(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def ours(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    y: Tensor = tn.attention(q, k, v, causal=causal)[0]
    return y


def with_gradient(forward: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, causal: bool, dy: Tensor) -> object:
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    return torch.autograd.grad(forward(*leaves, causal), leaves, dy)


def measure(form: tuple[int, ...], causal: bool, dtype: torch.dtype) -> list[dict[str, Any]]:
    b, hq, hk, m, n, d = form
    made: dict[str, Any] = {"dtype": dtype, "device": "cuda"}
    q, k, v = torch.randn(b, hq, m, d, **made), torch.randn(b, hk, n, d, **made), torch.randn(b, hk, n, d, **made)
    dy = torch.randn(b, hq, m, d, **made)
    sides = {"tenon": ours, **{name: partial(theirs, backend) for name, backend in PEERS.items()}}
    pairs = b * hq * (m * n if not causal else m * n - m * (m - 1) // 2)
    rows = []
    for what, flops in (("forward", 4 * d * pairs), ("with gradient", 14 * d * pairs)):
        calls: dict[str, Call] = {}
        for name, side in sides.items():
            call = partial(side, q, k, v, causal)
            calls[name] = call if what == "forward" else partial(with_gradient, side, q, k, v, causal, dy)
            try:
                calls[name]()
            except RuntimeError as error:  # which a backend says that does not take the call
                print(f"  {name}: {str(error).splitlines()[0]}", flush=True)
                del calls[name]
        times = device_us(calls)
        rates = {name: round(flops / us / 1e6, 1) for name, us in times.items()}
        best = min((us for name, us in times.items() if name != "tenon"), default=float("nan"))
        row = {"form": list(form), "causal": causal, "type": str(dtype).removeprefix("torch."), "pass": what}
        rows.append({**row, "us": {name: round(us, 1) for name, us in times.items()}, "tflops": rates})
        shown = "  ".join(f"{name} {times[name]:9.1f} µs {rates[name]:6.1f}" for name in times)
        ratio = best / times["tenon"]
        print(f"  {form!s:32} {'causal' if causal else 'full':6} {what:13} {shown}  {ratio:.2f}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forms", nargs="*", metavar="FORM")
    parser.add_argument("--quick", action="store_true", help="writes no file")
    options = parser.parse_args()
    forms = [tuple(map(int, form.split(","))) for form in options.forms] or FORMS
    keep_busy(1)
    rows = [row for form in forms for causal in (False, True) for row in measure(form, causal, torch.bfloat16)]
    if not options.quick:
        write_result("attention-cuda", {**environment(), "gpu": torch.cuda.get_device_name(), "rows": rows})


if __name__ == "__main__":
    main()
