"""Optimisers of DTensors, in two processes: FSDP2 and whatever else lays parameters out."""

from __future__ import annotations

import copy
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import here
import pytest
import torch
import torch.distributed as dist
from cases import assert_close
from test_optim import WITH_MOMENTS, gradients, parameters
from torch import Tensor, nn

import tenon.torch as tn

if here.DEVICE != "cpu" or not dist.is_available():
    pytest.skip("two processes over gloo are on the CPU", allow_module_level=True)

from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

STEPS = 4


class Run:
    """A model of FSDP2 and an optimiser of torch.optim or tn.optim for it."""

    def __init__(self, optim: Any, clip: Callable[..., Any], name: str, args: dict[str, Any]) -> None:
        torch.manual_seed(0)
        # Rows that two processes cannot share evenly; of the last layer, one of them has none.
        self.model = nn.Sequential(nn.Linear(6, 5), tn.nn.LayerNorm(5), tn.nn.GELU(), nn.Linear(5, 1))
        fully_shard(self.model)
        self.make = lambda: getattr(optim, name)(self.model.parameters(), **args)
        self.optimizer, self.clip = self.make(), clip

    def train(self, seed: int) -> list[Tensor]:
        """The losses of this process, the norms of all gradients, and the parameters in the end."""
        generator, found = torch.Generator().manual_seed(seed), []
        for _ in range(STEPS):
            loss = self.model(torch.randn(4, 6, generator=generator)[dist.get_rank() :: 2]).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            found += [loss.detach(), self.clip(self.model.parameters(), 0.5).full_tensor()]
            self.optimizer.step()
        return found + whole(self.model.parameters())


def whole(tensors: Iterable[Any]) -> list[Tensor]:
    return [t.detach().full_tensor() for t in tensors]


def fully_sharded(name: str, args: dict[str, Any]) -> None:
    """The same losses, norms, parameters and states as torch's."""
    runs = [
        Run(tn.optim, tn.optim.clip_grad_norm_, name, args),
        Run(torch.optim, nn.utils.clip_grad_norm_, name, args),
    ]
    assert_close(*(run.train(seed=1) for run in runs), scale=0.2)
    for mine, other in zip(*(run.model.parameters() for run in runs), strict=True):
        ours, theirs = runs[0].optimizer.state[mine], runs[1].optimizer.state[other]
        assert mine._version == STEPS and list(ours) == list(theirs)
        for key, value in theirs.items():
            assert type(ours[key]) is type(value)
            assert getattr(ours[key], "placements", None) == getattr(value, "placements", None)
    for full in (False, True):  # each goes on from the other's state, as checkpoints have it
        options = StateDictOptions(full_state_dict=full)
        states = [get_optimizer_state_dict(run.model, run.optimizer, options=options) for run in runs]
        for run, state in zip(runs, reversed(states), strict=True):
            run.optimizer.zero_grad()  # or torch takes the new one for one in use
            run.optimizer = run.make()
            set_optimizer_state_dict(run.model, run.optimizer, state, options=options)
        assert_close(*(run.train(seed=2) for run in runs), scale=0.2)


LAYOUTS = [Shard(1), Shard(0), Replicate()]
ROWS = [(name, args, dtype) for name, args in WITH_MOMENTS for dtype in (torch.float32, torch.bfloat16)]
ROWS += [("AdamW", {"master_weights": True, "maximize": True}, torch.bfloat16)]


def laid_out(name: str, args: dict[str, Any], dtype: torch.dtype) -> None:
    """However parameters and gradients are laid out: the same as in one place."""
    mesh, plain = init_device_mesh("cpu", (2,)), parameters(dtype)[: len(LAYOUTS)]
    params = [nn.Parameter(distribute_tensor(p.detach(), mesh, [at])) for p, at in zip(plain, LAYOUTS, strict=True)]
    mine, whole_ones = (getattr(tn.optim, name)(some, **args) for some in (params, plain))
    for i, step in enumerate(gradients(dtype, STEPS)):
        for p, q, g in zip(params, plain, step, strict=False):
            half = DTensor.from_local(g / 2, mesh, [Partial()])  # each process has one, and they are still to be added
            p.grad = half if i % 2 else distribute_tensor(g, mesh, [Replicate()])
            q.grad = g
        mine.step()
        whole_ones.step()
        mine.load_state_dict(copy.deepcopy(mine.state_dict()))
    assert_close(whole(params), [p.detach() for p in plain], "bf16" if dtype == torch.bfloat16 else "f32", scale=0.2)


def work(rank: int, folder: str) -> None:
    """What each process does."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 2), rank=rank, world_size=2)
    for name, args in WITH_MOMENTS:
        fully_sharded(name, args)
    for row in ROWS:
        laid_out(*row)
    dist.destroy_process_group()


def test_in_two_processes(tmp_path: pathlib.Path) -> None:
    torch.multiprocessing.spawn(work, (str(tmp_path),), nprocs=2)
