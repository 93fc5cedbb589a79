"""What the optimisers share: the loop over groups, the types of states, and loading them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tenon.torch._ops import filled
from tenon.torch._param import Param, plain

Number = float | Tensor | Param
Group = dict[str, Any]


def wide(dtype: torch.dtype) -> torch.dtype:
    """What a type is accumulated in: acc(T)."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def scalar(value: float | Tensor, like: Tensor) -> Tensor:
    """A number for operators on tensors like this one."""
    if isinstance(value, Tensor):
        return value.detach().to(like.device, wide(like.dtype)).reshape(())
    return filled(value, wide(like.dtype), like.device)


def is_sharded(tensor: Tensor) -> bool:
    """Whether it is a DTensor, as FSDP's parameters are. Their module takes a while to import, so it is not asked."""
    return hasattr(tensor, "to_local")


def local(tensors: Sequence[Any]) -> Sequence[Tensor]:
    """What of them is in this process, in the same memory: steps go element by element. All are DTensors, or none."""
    return [t.to_local() for t in tensors] if is_sharded(tensors[0]) else tensors


class FusedOptimizer(torch.optim.Optimizer):
    """In front of torch's optimiser in the list of bases, which brings the constructor and the state_dict."""

    _moments: tuple[str, ...]  # what the state keeps in the type of _kept
    _absent: tuple[str, ...]  # flags of torch's that have to be False
    _sparse: str  # the optimiser of torch's that takes sparse gradients

    def _note(self, **own: Any) -> None:
        """Arguments that torch's optimiser does not have."""
        dtype = own["state_dtype"]
        if dtype is not None and not dtype.is_floating_point:
            raise ValueError(f"tn.optim.{type(self).__name__}: state_dtype is {dtype}; moments are floating-point")
        self.defaults.update(own)
        for group in self.param_groups:
            for name, value in own.items():
                group.setdefault(name, value)

    def _kept(self, group: Group, p: Tensor) -> torch.dtype:
        """The type of a parameter's moments. A group of torch's, which a state_dict may bring, does not say."""
        chosen: torch.dtype | None = group.get("state_dtype", self.defaults["state_dtype"])
        usual = wide(p.dtype) if self._has_masters(group, p) else p.dtype
        return usual if chosen is None else chosen

    def _has_masters(self, group: Group, p: Tensor) -> bool:
        return bool(group.get("master_weights", self.defaults.get("master_weights"))) and wide(p.dtype) != p.dtype

    def _refuse(self, group: Group) -> None:
        name = type(self).__name__
        for flag in self._absent:
            if group.get(flag, self.defaults.get(flag)):
                raise NotImplementedError(f"tn.optim.{name} has no {flag}=True; torch.optim.{name} has")

    def add_param_group(self, param_group: Group) -> None:
        self._refuse(param_group)
        super().add_param_group({key: plain(value) for key, value in param_group.items()})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes a step. `closure` evaluates the model again and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for params, grads in self._alike(group):
                self._update(group, params, torch._foreach_neg(grads) if group["maximize"] else grads)
                if is_sharded(params[0]):  # the operator has told its parts alone that they were written
                    torch.autograd.graph.increment_version(params)
        return loss

    def _alike(self, group: Group) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
        """The parameters that have a gradient, and what is here of these, in lists that one call updates."""
        found: dict[Hashable, tuple[list[Tensor], list[Tensor]]] = {}
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            if grad.is_sparse:
                name = type(self).__name__
                raise NotImplementedError(f"tn.optim.{name} takes no sparse gradients; torch.optim.{self._sparse} does")
            sharded = is_sharded(p)
            if sharded:
                if grad.placements != p.placements:  # such as a sum that is still to be made
                    grad = grad.redistribute(placements=p.placements)
                grad = grad.to_local()
            alike = (p.device, p.dtype, grad.dtype, sharded, self._stage(group, p))
            params, grads = found.setdefault(alike, ([], []))
            params.append(p)
            grads.append(grad)
        yield from found.values()

    @abstractmethod
    def _stage(self, group: Group, p: Tensor) -> Hashable:
        """Makes the state of a parameter if it has none; says what else must be equal within one call."""

    @abstractmethod
    def _update(self, group: Group, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """A step of these, which have all of that in common."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's. What it rounds to a parameter's type and is kept in another is read again, between the hooks of
        others."""
        given: dict[str, Any] = {}

        def note(_: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
            for group in state_dict["param_groups"]:
                self._refuse(group)
            given.update(state_dict)

        before = self.register_load_state_dict_pre_hook(note)
        after = self.register_load_state_dict_post_hook(lambda _: self._settle(given), prepend=True)
        try:
            super().load_state_dict(state_dict)
        finally:
            before.remove()
            after.remove()

    def _settle(self, given: dict[str, Any]) -> None:
        """What torch has loaded from this dict becomes as it is kept here."""
        saved = [index for group in given["param_groups"] for index in group["params"]]
        own = [(p, group) for group in self.param_groups for p in group["params"]]
        for index, (p, group) in zip(saved, own, strict=True):
            entries = given["state"].get(index, {})
            for name in self._moments:
                dtype = wide(p.dtype) if name == "master" else self._kept(group, p)
                if dtype != p.dtype and entries.get(name) is not None:
                    self.state[p][name] = entries[name].detach().to(p.device, dtype, copy=True)
