"""Optimisers with PyTorch's names, constructors and state_dicts, whose step is one pass over memory.

``tn.optim.AdamW(model.parameters(), lr=1e-3)`` stands wherever ``torch.optim.AdamW`` did: learning-rate schedulers,
hooks and ``GradScaler`` go on working, and a state_dict of one loads into the other. `lr` may be a number, a tensor or
a ``tn.Param``, which a captured CUDA graph reads at each replay. The state takes as many bytes as torch's: moments have
the parameter's type, unless `state_dtype=torch.float32` keeps those of 16-bit parameters in 32. Steps are computed in
f32 either way. Where parameters are DTensors, as FSDP2's are, each process makes the step of its part, and the state is
made of DTensors too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import tenon.torch as tn
from tenon._suggest import missing
from tenon.torch._ops import filled
from tenon.torch._param import Param, plain

__all__ = ["SGD", "AdamW", "clip_grad_norm_"]

Number = float | Tensor | Param
Group = dict[str, Any]


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What a type is accumulated in: acc(T)."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _scalar(value: float | Tensor, like: Tensor) -> Tensor:
    """A number for operators on tensors like this one."""
    if isinstance(value, Tensor):
        return value.detach().to(like.device, _wide(like.dtype)).reshape(())
    return filled(value, _wide(like.dtype), like.device)


def _is_sharded(tensor: Tensor) -> bool:
    """Whether it is a DTensor, as FSDP's parameters are. Their module takes a while to import, so it is not asked."""
    return hasattr(tensor, "to_local")


def _local(tensors: Sequence[Any]) -> Sequence[Tensor]:
    """What of them is in this process, in the same memory: steps go element by element. All are DTensors, or none."""
    return [t.to_local() for t in tensors] if _is_sharded(tensors[0]) else tensors


# ---- what the optimisers share ---------------------------------------------------------------------------------------


class _Optimizer(torch.optim.Optimizer):
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
        usual = _wide(p.dtype) if self._has_masters(group, p) else p.dtype
        return usual if chosen is None else chosen

    def _has_masters(self, group: Group, p: Tensor) -> bool:
        return bool(group.get("master_weights", self.defaults.get("master_weights"))) and _wide(p.dtype) != p.dtype

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
                if _is_sharded(params[0]):  # the operator has told its parts alone that they were written
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
            sharded = _is_sharded(p)
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
                dtype = _wide(p.dtype) if name == "master" else self._kept(group, p)
                if dtype != p.dtype and entries.get(name) is not None:
                    self.state[p][name] = entries[name].detach().to(p.device, dtype, copy=True)


class AdamW(_Optimizer, torch.optim.AdamW):
    """tn.adamw_step as an optimiser; arguments as torch.optim.AdamW's, but for amsgrad and differentiable.

    `foreach` and `fused` choose between implementations of torch's, and change nothing here. Moments are of
    `state_dtype`, or of the parameter's type. With `master_weights`, 16-bit parameters are roundings of f32 ones that
    the state keeps, and so are moments. With `capturable`, the parameters of a group that have a gradient must be the
    same ones in each step.
    """

    _moments = ("exp_avg", "exp_avg_sq", "master")
    _absent = ("amsgrad", "differentiable")
    _sparse = "SparseAdam"

    def _refuse(self, group: Group) -> None:
        super()._refuse(group)
        if not group.get("decoupled_weight_decay", True):
            raise NotImplementedError("tn.optim.AdamW decouples weight decay; torch.optim.Adam is without that")

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        master_weights: bool = False,
        state_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            params,
            plain(lr),
            (float(betas[0]), float(betas[1])),
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
        )
        self._note(master_weights=master_weights, state_dtype=state_dtype)

    def _alike(self, group: Group) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
        if group["capturable"]:
            begun = [p for p in group["params"] if p in self.state]
            if begun and [id(p) for p in begun] != [id(p) for p in group["params"] if p.grad is not None]:
                raise NotImplementedError(
                    "tn.optim.AdamW: with capturable=True, a group's parameters with a gradient must stay the same ones"
                )
        return super()._alike(group)

    def _stage(self, group: Group, p: Tensor) -> Hashable:
        state = self.state[p]
        if not state:
            place = p.device if group["capturable"] else "cpu"
            state["step"] = torch.zeros((), dtype=torch.float32, device=place)  # 16 bits would stop at 256
            state["exp_avg"] = torch.zeros_like(p, dtype=self._kept(group, p))
            state["exp_avg_sq"] = torch.zeros_like(p, dtype=self._kept(group, p))
        masters = self._has_masters(group, p)
        if masters and "master" not in state:
            state["master"] = p.detach().to(_wide(p.dtype))
        return masters, state["exp_avg"].dtype, None if group["capturable"] else float(state["step"])

    def _update(self, group: Group, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        states = [self.state[p] for p in params]
        step = states[0]["step"] if group["capturable"] else states[0]["step"].item() + 1
        if group["capturable"]:
            torch._foreach_add_([s["step"] for s in states], 1)
        else:
            for state in states:  # on the CPU, where adding takes twice as long
                state["step"].fill_(step)
        tn.adamw_step_list(
            _local(params),
            grads,
            _local([s["exp_avg"] for s in states]),
            _local([s["exp_avg_sq"] for s in states]),
            _local([s["master"] for s in states]) if self._has_masters(group, params[0]) else None,
            _scalar(group["lr"], params[0]),
            _scalar(step, params[0]),
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
        )

    def _settle(self, given: dict[str, Any]) -> None:
        super()._settle(given)
        for group in self.param_groups:
            begun = [p for p in group["params"] if p in self.state]
            for p in begun:  # torch's fused implementations have it on the device
                self.state[p]["step"] = self.state[p]["step"].to(p.device if group["capturable"] else "cpu", copy=True)
            steps = {float(self.state[p]["step"]) for p in begun}
            if group["capturable"] and len(steps) > 1:
                raise NotImplementedError(
                    f"tn.optim.AdamW: with capturable=True all parameters of a group must have made as many steps, but "
                    f"they have made {', '.join(f'{s:g}' for s in sorted(steps))}"
                )


class SGD(_Optimizer, torch.optim.SGD):
    """tn.sgd_step as an optimiser; arguments as torch.optim.SGD's, but for differentiable.

    `foreach` and `fused` choose between implementations of torch's, and change nothing here. The buffers of momentum
    are of `state_dtype`, or of the parameter's type; without momentum there are none.
    """

    _moments = ("momentum_buffer",)
    _absent = ("differentiable",)
    _sparse = "SGD"

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        state_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            params,
            plain(lr),
            momentum,
            dampening,
            weight_decay,
            nesterov,
            maximize=maximize,
            differentiable=differentiable,
        )
        self._note(state_dtype=state_dtype)

    def _stage(self, group: Group, p: Tensor) -> Hashable:
        if group["momentum"] == 0:
            return None
        buffer = self.state[p].get("momentum_buffer")
        return None if buffer is None else buffer.dtype

    def _update(self, group: Group, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        states = [self.state[p] for p in params]
        first = group["momentum"] != 0 and states[0].get("momentum_buffer") is None
        if first:  # torch's first buffer is the gradient itself: what one of 0 gives without dampening
            for p, state in zip(params, states, strict=True):
                state["momentum_buffer"] = torch.zeros_like(p, dtype=self._kept(group, p))
        tn.sgd_step_list(
            _local(params),
            grads,
            _local([s["momentum_buffer"] for s in states]) if group["momentum"] != 0 else None,
            _scalar(group["lr"], params[0]),
            momentum=float(group["momentum"]),
            dampening=0.0 if first else float(group["dampening"]),
            weight_decay=float(group["weight_decay"]),
            nesterov=group["nesterov"],
        )


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: Number,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """torch.nn.utils.clip_grad_norm_ in two passes over the gradients: scales them so that the norm of all together is
    at most `max_norm`, and returns what it was.

    Gradients of several types or devices, that are complex, DTensors or occur twice, other norms and
    `error_if_nonfinite` go to torch's.
    """
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    alike = len({(g.device, g.dtype) for g in grads}) == 1 and len({id(g) for g in grads}) == len(grads)
    ours = alike and not grads[0].is_complex() and not any(map(_is_sharded, grads))
    if norm_type != 2.0 or error_if_nonfinite or not ours:
        norm: Tensor = torch.nn.utils.clip_grad_norm_(
            parameters, plain(max_norm), norm_type, error_if_nonfinite, foreach
        )
        return norm
    with torch.no_grad():
        return tn.clip_grad_norm(grads, _scalar(plain(max_norm), grads[0]))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise missing(__name__, name, __all__, (torch.optim, torch.nn.utils))
