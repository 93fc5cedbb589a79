"""Two processes train one model with DistributedDataParallel over gloo, with Tenon's modules and with PyTorch's.

    pip install torch scikit-learn
    PYTHONPATH=python python examples/torch/ddp.py [--device cuda]

Replaces nothing but a worry: that an operator of one's own breaks where autograd's hooks, buckets and several processes
come together. Both models start from the same weights, see the same halves of the same batches, and end with the same
losses. On CUDA both processes share one GPU.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

import torch
import torch.distributed as dist

# Imported before there is a process group: defaults of its functions are the group of that moment. DDP imports it too,
# and then they hold the group for good: destroy_process_group would leave gloo's threads alive, and one of them that
# lets go of a tensor while Python ends aborts the process ("terminate called without an active exception").
import torch.distributed.nn
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import tenon.torch as tn
from digits import load

PROCESSES = 2


def make(kind: Any, device: str) -> nn.Module:
    """A classifier out of torch.nn or tn.nn, which have the same names."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        kind.BatchNorm2d(16),
        kind.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 64, 64),
        kind.LayerNorm(64),
        kind.GELU(),
        nn.Linear(64, 10),
    ).to(device)


def train(rank: int, kind: Any, optim: Any, device: str) -> list[float]:
    images, labels, _, _ = load(device)
    model = DistributedDataParallel(make(kind, device))
    loss_of, optimizer = kind.CrossEntropyLoss(), optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for batch in torch.arange(len(images), device=device).split(100)[:12]:
        part = batch.chunk(PROCESSES)[rank]
        loss: Tensor = loss_of(model(images[part]), labels[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / PROCESSES)
    return losses


def work(rank: int, folder: str, device: str) -> None:
    """What each process does; the first one reports."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), PROCESSES)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=PROCESSES)
    ours = train(rank, tn.nn, tn.optim, device)
    theirs = train(rank, torch.nn, torch.optim, device)
    dist.destroy_process_group()
    if rank == 0:
        print(f"{PROCESSES} processes on {device}\n{'step':<6}{'tenon':>9}{'torch':>9}")
        for step, (mine, other) in enumerate(zip(ours, theirs, strict=True), 1):
            print(f"{step:<6}{mine:>9.4f}{other:>9.4f}")
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=2e-3, atol=2e-3)
    assert ours[-1] < 0.5 * ours[0]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu")
    device = arguments.parse_args().device
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (folder, device), nprocs=PROCESSES)


if __name__ == "__main__":
    main()
