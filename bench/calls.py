"""What a call costs before it computes anything:  python bench/calls.py [--device cuda]

Small tensors, so that the time is that of the call itself: Tenon's operators and PyTorch's own, taking turns, forward
without gradients and forward with backward. Writes bench/results/calls-<device>-<machine>-<date>.json.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from peers import PEERS, Inputs, Peer
from run import compare, environment, write_result

SMALL = {"softmax": (4, 64), "layer_norm": (4, 64), "cross_entropy": (4, 64), "sum": (4, 64), "batch_norm": (2, 4, 4)}


def calls(peer: Peer, device: str) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Forward, and forward with backward: ours and theirs."""
    inputs: Inputs = {k: t.to(device) for k, t in peer.make(SMALL[peer.op], torch.float32).items()}
    graded: Inputs = {k: t.detach().requires_grad_(k in peer.differentiate) for k, t in inputs.items()}
    dy = torch.ones_like(peer.theirs(inputs))
    leaves = [graded[k] for k in peer.differentiate]

    def both(call: Callable[[Inputs], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(call(graded), leaves, dy)

    return {
        "forward": (lambda: peer.ours(inputs), lambda: peer.theirs(inputs)),
        "fwd+bwd": (both(peer.ours), both(peer.theirs)),
    }


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu", help="cpu (default), cuda or cuda:1")
    device = arguments.parse_args().device
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    print(f"  {'operator':<14} {'pass':<9}    tenon µs    torch µs   tenon / torch")
    for peer in PEERS:
        for name, (ours, theirs) in calls(peer, device).items():
            with torch.set_grad_enabled(name != "forward"):
                a, b = (1e6 * t for t in compare(ours, theirs))
            rows.append({"op": peer.op, "pass": name, "tenon_us": round(a, 2), "torch_us": round(b, 2)})
            rows[-1]["times_torch"] = round(a / b, 2)
            print(f"  {peer.op:<14} {name:<9} {a:>11.2f} {b:>11.2f} {a / b:>15.2f}", flush=True)
    write_result(f"calls-{torch.device(device).type}", {**environment(), "device": device, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
