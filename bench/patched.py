"""Models of transformers and torchvision with tn.patch and without:  python bench/patched.py [--steps N] [FAMILY …]

Each family of bench/models.py is trained three times from the same weights on the same batches: as it is, patched, and
as it is with weights that are off by one rounding. The third shows how far apart training runs get by rounding alone.
`apart` and `noise` are the mean differences of the losses of the second and the third from the first, in f32 and in
bf16. Writes bench/results/patched-<device>-<machine>-<date>.json, unless families are named.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import warnings
from typing import Any

import torch
from torch import nn

import tenon.torch as tn
from models import FAMILIES, Family
from run import environment, write_result

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def losses(model: nn.Module, family: Family, steps: int, device: str) -> list[float]:
    generator, found = torch.Generator().manual_seed(1), []
    dtype = next(model.parameters()).dtype
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        batch = {k: t.to(device, dtype if t.is_floating_point() else None) for k, t in family.batch(generator).items()}
        loss = model(**batch)["loss"]
        loss.backward()
        found.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(found).tolist()


def rounded_otherwise(model: nn.Module) -> nn.Module:
    made = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in made.parameters():
            sign = torch.randint(2, p.shape, generator=generator).to(p.device, p.dtype) * 2 - 1
            p.mul_(1 + sign * torch.finfo(p.dtype).eps)
    return made


def row(name: str, kind: str, steps: int, device: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model = FAMILIES[name].build().train().to(device, TYPES[kind])
    patched = copy.deepcopy(model)
    count = tn.patch(patched).count
    runs = [losses(m, FAMILIES[name], steps, device) for m in (copy.deepcopy(model), patched, rounded_otherwise(model))]
    apart, noise = (statistics.fmean(abs(a - b) for a, b in zip(runs[0], run, strict=True)) for run in runs[1:])
    ends = {"first": runs[0][0], "last": runs[0][-1], "patched_last": runs[1][-1]}
    return {
        "model": name,
        "type": kind,
        "steps": steps,
        "replaced": count,
        **{k: round(v, 4) for k, v in ends.items()},
    } | {
        "apart": float(f"{apart:.2g}"),
        "noise": float(f"{noise:.2g}"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if options.device == "cpu":
        torch.set_num_threads(1)  # models as small as these wait more for threads than they compute
    rows = []
    print(f"{'model':10} {'type':5} {'first':>8} {'last':>8} {'patched':>8} {'apart':>8} {'noise':>8}")
    for name in options.families or FAMILIES:
        for kind in TYPES:
            rows.append(made := row(name, kind, options.steps, options.device))
            numbers = [made[key] for key in ("first", "last", "patched_last", "apart", "noise")]
            print(
                f"{name:10} {kind:5} " + " ".join(f"{n:8.2g}" if n < 0.01 else f"{n:8.4f}" for n in numbers), flush=True
            )
    if not options.families:
        method = "mean differences of the losses from those of the model as it is: patched, and off by one rounding"
        write_result(f"patched-{options.device}", {**environment(), "method": method, "rows": rows})


if __name__ == "__main__":
    main()
