"""Optimisers: what tn.optim's do, torch.optim's of the same name and arguments do."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import here
import pytest
import torch
import torch._dynamo.testing
from cases import assert_close
from torch import Tensor, nn

import tenon.torch as tn

SHAPES = ((5, 7), (7,), (3, 2, 4), ())
STEPS = 20
Make = Callable[..., torch.optim.Optimizer]


def parameters(dtype: torch.dtype) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(3)
    return [nn.Parameter(torch.randn(s, generator=generator).to(here.DEVICE, dtype)) for s in SHAPES]


def gradients(dtype: torch.dtype, steps: int = STEPS, seed: int = 4) -> Iterator[list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield [torch.randn(s, generator=generator).to(here.DEVICE, dtype) for s in SHAPES]


def run(optimizer: torch.optim.Optimizer, params: list[nn.Parameter], grads: Iterator[list[Tensor]]) -> None:
    for step in grads:
        for p, g in zip(params, step, strict=True):
            p.grad = g.clone()
        optimizer.step()


def options(**choices: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


ADAMW = options(
    lr=(1e-3, 0.1), betas=((0.9, 0.999), (0.5, 0.8)), eps=(1e-8, 1e-3), weight_decay=(0.0, 0.1), maximize=(False, True)
)
SGD = [
    o
    for o in options(
        lr=(1e-3, 0.1),
        momentum=(0, 0.9),
        dampening=(0, 0.3),
        weight_decay=(0, 0.1),
        nesterov=(False, True),
        maximize=(False, True),
    )
    if not o["nesterov"] or (o["momentum"] and not o["dampening"])
]
ADAM = options(betas=((0.9, 0.999), (0.5, 0.4)), weight_decay=(0.0, 0.1), decoupled_weight_decay=(False, True))
ADAFACTOR = options(eps=((None, 1e-3), (1e-3, 0.1)), d=(1.0, 2.0), weight_decay=(0.0, 0.1), maximize=(False, True))
ALL = [
    *(("AdamW", o) for o in ADAMW),
    *(("SGD", o) for o in SGD),
    *(("Adam", {"lr": 0.1, **o}) for o in ADAM),
    *(("Adafactor", {"lr": 0.1, **o}) for o in ADAFACTOR),
]
WITH_MOMENTS = [
    ("AdamW", {"lr": 0.1, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
]
SOME = [*WITH_MOMENTS, ("Adafactor", {"lr": 0.1, "weight_decay": 0.1})]


def named(value: Any) -> str:
    return value if isinstance(value, str) else ",".join(f"{k}={v}" for k, v in value.items())


@pytest.mark.parametrize(("name", "args"), ALL, ids=named)
def test_same_as_torch(name: str, args: dict[str, Any]) -> None:
    ours, theirs = parameters(torch.float32), parameters(torch.float32)
    run(getattr(tn.optim, name)(ours, **args), ours, gradients(torch.float32))
    run(getattr(torch.optim, name)(theirs, **args), theirs, gradients(torch.float32))
    assert_close(ours, theirs, scale=0.2)


@pytest.mark.parametrize(("name", "args"), SOME, ids=named)
def test_same_as_torch_in_f64(name: str, args: dict[str, Any]) -> None:
    """Two groups, each with a rate and a decay of its own."""
    results = []
    for make in (getattr(tn.optim, name), getattr(torch.optim, name)):
        params = parameters(torch.float64)
        groups = [{"params": params[:2], "lr": 0.05, "weight_decay": 0.3}, {"params": params[2:]}]
        run(make(groups, **args), params, gradients(torch.float64))
        results.append(params)
    for p, peer in zip(*results, strict=True):
        torch.testing.assert_close(p, peer, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(("name", "args"), ALL, ids=named)
def test_16_bit_parameters(name: str, args: dict[str, Any]) -> None:
    """With f32 moments, each step is the one of f32 from the same place, rounded once."""
    ours = parameters(torch.bfloat16)
    mine = getattr(tn.optim, name)(ours, **args, state_dtype=torch.float32)
    steps = list(gradients(torch.bfloat16))
    theirs = [nn.Parameter(p.detach().float()) for p in ours]
    other = getattr(torch.optim, name)(theirs, **args)
    for step in steps:
        for p, peer, g in zip(ours, theirs, step, strict=True):
            peer.data.copy_(p)
            peer.grad = g.float()
            p.grad = g
        mine.step()
        other.step()
        for p, peer in zip(ours, theirs, strict=True):
            torch.testing.assert_close(p.float(), peer.data, rtol=2**-8, atol=1e-6)


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    tensors = (t for state in optimizer.state.values() for t in state.values() if isinstance(t, Tensor))
    return sum(t.numel() * t.element_size() for t in tensors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize(("name", "args"), [*SOME, ("SGD", {"lr": 0.1})], ids=named)
def test_the_state_takes_as_many_bytes_as_torchs(name: str, args: dict[str, Any], dtype: torch.dtype) -> None:
    """And the steps with it are torch's, but for roundings. (Its Adam that is not fused loses eps in f16, its fused
    SGD is wrong in 16 bits on the CPU.)"""
    ours, theirs = parameters(dtype), parameters(dtype)
    mine = getattr(tn.optim, name)(ours, **args)
    other = getattr(torch.optim, name)(theirs, **args, **({"fused": True} if name.startswith("Adam") else {}))
    run(mine, ours, gradients(dtype, 5))
    run(other, theirs, gradients(dtype, 5))
    assert state_bytes(mine) == state_bytes(other)
    for p, peer in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, peer, rtol=16 * torch.finfo(dtype).eps, atol=16 * torch.finfo(dtype).eps)
    wide = getattr(tn.optim, name)(ours, **args, state_dtype=torch.float32)
    run(wide, ours, gradients(dtype, 1))
    assert all(s[k].dtype == torch.float32 for s in wide.state.values() for k in s)


def test_a_type_of_states_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"state_dtype is torch\.int8; moments are floating-point"):
        tn.optim.AdamW(parameters(torch.float32), state_dtype=torch.int8)


def test_plain_descent_allocates_nothing() -> None:
    """Nothing that grows with the parameter: a million elements, and no tensor of as many is made."""
    p = nn.Parameter(torch.zeros(1 << 20, device=here.DEVICE))
    p.grad = torch.ones_like(p)
    optimizer = tn.optim.SGD([p], lr=0.5, weight_decay=0.1)
    made: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            made.extend(t.numel() for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, Tensor))
            return result

    with Watch():
        optimizer.step()
    assert max(made, default=0) <= 1 and not optimizer.state[p]
    assert torch.equal(p.detach(), torch.full_like(p, -0.5))


def graphs(step: Callable[[], Any], before: Callable[[int], None]) -> int:
    """How many graphs torch.compile makes of twelve steps; AOTAutograd makes a constant of what it cannot compute as a
    tensor, and dynamo alone does not."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(step, backend=counter)
    for i in range(12):
        before(i)
        compiled()
    return counter.frame_count


@pytest.mark.parametrize(("name", "args"), [*SOME, ("SGD", {"lr": 0.1}), ("Lion", {"lr": 0.1})], ids=named)
def test_a_rate_that_changes_is_not_compiled_again(name: str, args: dict[str, Any]) -> None:
    params = parameters(torch.float32)
    optimizer = getattr(tn.optim, name)(params, **args)
    grads = list(gradients(torch.float32, 12))

    def before(i: int) -> None:
        for p, g in zip(params, grads[i], strict=True):
            p.grad = g
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / (i + 1)

    # One for the first step, where there is no state yet, one for the second, and one for all others, whose rate is a
    # symbol.
    assert graphs(optimizer.step, before) <= 3


def test_a_number_for_the_rate_is_not_compiled_again() -> None:
    p, m, rate = torch.zeros(5, device=here.DEVICE), torch.zeros(5, device=here.DEVICE), 0.1

    def step() -> None:
        tn.sgd_step(p, torch.ones_like(p), m, lr=rate)

    def before(i: int) -> None:
        nonlocal rate
        rate = 0.1 / (i + 1)

    assert graphs(step, before) <= 2


@pytest.mark.parametrize("step", [0.0, -1.0])
def test_there_is_no_step_before_the_first(step: float) -> None:
    tensors = [torch.ones(3, device=here.DEVICE) for _ in range(4)]
    tn.adamw_step(*tensors, lr=0.1, step=step)
    assert tensors[0].isnan().all()


@pytest.mark.parametrize(("name", "args"), SOME, ids=named)
def test_states_load_both_ways(name: str, args: dict[str, Any]) -> None:
    """Ten steps with one, the next ten with the other, whichever begins."""
    makes: list[Make] = [getattr(tn.optim, name), getattr(torch.optim, name)]
    results = []
    for first, second in itertools.product(makes, makes):
        params = parameters(torch.float32)
        one = first(params, **args)
        run(one, params, gradients(torch.float32, 10))
        two = second(params, **{**args, "lr": 1.0})
        two.load_state_dict(copy.deepcopy(one.state_dict()))
        run(two, params, gradients(torch.float32, 10, seed=5))
        results.append(params)
        assert set(two.state_dict()["state"][0]) >= set(torch_state(name, args))
    for other in results[1:]:
        assert_close(results[0], other, scale=0.2)


def torch_state(name: str, args: dict[str, Any]) -> list[str]:
    params = parameters(torch.float32)
    optimizer = getattr(torch.optim, name)(params, **args)
    run(optimizer, params, gradients(torch.float32, 1))
    return list(optimizer.state_dict()["state"][0])


@pytest.mark.parametrize("masters", [False, True])
def test_16_bit_states_keep_their_bits(masters: bool) -> None:
    params = parameters(torch.bfloat16)
    one = tn.optim.AdamW(params, master_weights=masters, state_dtype=torch.float32)
    run(one, params, gradients(torch.bfloat16, 5))
    two = tn.optim.AdamW(params, master_weights=masters, state_dtype=torch.float32)
    two.load_state_dict(one.state_dict())
    names = ["exp_avg", "exp_avg_sq"] + (["master"] if masters else [])
    for p, name in itertools.product(params, names):
        assert two.state[p][name].dtype == torch.float32
        assert torch.equal(two.state[p][name], one.state[p][name])
        assert two.state[p][name] is not one.state[p][name]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("name", "args"), WITH_MOMENTS, ids=named)
def test_hooks_of_loading(name: str, args: dict[str, Any], dtype: torch.dtype) -> None:
    """What a hook in front returns is loaded, and what one behind does to the state stays."""
    moment, found = {"SGD": "momentum_buffer"}.get(name, "exp_avg"), []

    def double(_: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        state = {k: {**v, moment: 2 * v[moment]} for k, v in state_dict["state"].items()}
        return {**state_dict, "state": state}

    def add(optimizer: torch.optim.Optimizer) -> None:
        found.append({id(p): s[moment].dtype for p, s in optimizer.state.items()})
        for state in optimizer.state.values():
            state[moment] = state[moment] + 1

    params = parameters(dtype)
    one = getattr(tn.optim, name)(params, **args, state_dtype=torch.float32)
    run(one, params, gradients(dtype, 3))
    two = getattr(tn.optim, name)(params, **args, state_dtype=torch.float32)
    two.register_load_state_dict_pre_hook(double)
    two.register_load_state_dict_post_hook(add)
    for _ in range(2):  # and nothing is left behind by the first time
        two.load_state_dict(one.state_dict())
        for p in params:
            assert found[-1][id(p)] == torch.float32
            assert_close(two.state[p][moment], 2 * one.state[p][moment] + 1)


def test_hooks_bring_what_is_refused() -> None:
    params = parameters(torch.float32)
    optimizer = tn.optim.AdamW(params)
    optimizer.register_load_state_dict_pre_hook(
        lambda _, s: {**s, "param_groups": [{**g, "amsgrad": True} for g in s["param_groups"]]}
    )
    with pytest.raises(NotImplementedError, match="no amsgrad=True"):
        optimizer.load_state_dict(torch.optim.AdamW(params).state_dict())


def lion(p: Tensor, m: Tensor, g: Tensor, lr: float, betas: tuple[float, float], weight_decay: float) -> None:
    """As the paper has it."""
    update = (betas[0] * m + (1 - betas[0]) * g).sign()
    p.copy_(p - lr * (update + weight_decay * p))
    m.copy_(betas[1] * m + (1 - betas[1]) * g)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_lion(dtype: torch.dtype, maximize: bool) -> None:
    """With f32 ones behind parameters of 16 bits; two groups, and half of the way with a loaded state."""
    wide = torch.promote_types(dtype, torch.float32)
    params = parameters(dtype)
    peers, moments = [p.detach().to(wide) for p in params], [torch.zeros_like(p, dtype=wide) for p in params]
    groups = [{"params": params[:2], "lr": 0.01, "weight_decay": 0.3}, {"params": params[2:], "betas": (0.4, 0.3)}]
    args: dict[str, Any] = {"lr": 0.1, "weight_decay": 0.1, "maximize": maximize, "master_weights": True}
    rates = [(0.01, (0.9, 0.99), 0.3)] * 2 + [(0.1, (0.4, 0.3), 0.1)] * 2
    optimizer = tn.optim.Lion(groups, **args)
    for i, step in enumerate(gradients(dtype)):
        if i == STEPS // 2:
            other = tn.optim.Lion(groups, **args)
            other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            optimizer = other
        run(optimizer, params, iter([step]))
        for p, m, g, rate in zip(peers, moments, step, rates, strict=True):
            lion(p, m, -g.to(wide) if maximize else g.to(wide), *rate)
    for p, peer in zip(params, peers, strict=True):
        torch.testing.assert_close(p.detach(), peer.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


def test_a_step_of_adafactor_reads_nothing_back() -> None:
    """Views of the parameter, whatever its layout, and a state that torch's loads."""
    p = nn.Parameter(here.randn(4, 6).T)
    peer = nn.Parameter(p.detach().clone())
    ours, theirs = tn.optim.Adafactor([p]), torch.optim.Adafactor([peer])
    for g in (here.randn(6, 4) for _ in range(3)):
        run(ours, [p], iter([[g]]))
        run(theirs, [peer], iter([[g]]))
    assert_close(p, peer, scale=0.2)
    assert {k: v.shape for k, v in ours.state[p].items()} == {k: v.shape for k, v in theirs.state[peer].items()}


def test_master_weights() -> None:
    """With small steps, parameters in bf16 stand still; with f32 ones behind them they follow f32."""
    args: dict[str, Any] = {"lr": 1e-4, "weight_decay": 0.1}
    ours = parameters(torch.bfloat16)
    theirs = [nn.Parameter(p.detach().float()) for p in ours]
    run(tn.optim.AdamW(ours, **args, master_weights=True), ours, gradients(torch.bfloat16, 100))
    steps = ([g.float() for g in step] for step in gradients(torch.bfloat16, 100))
    run(torch.optim.AdamW(theirs, **args), theirs, steps)
    for p, peer in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p.float(), peer.data, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize(("name", "args"), SOME, ids=named)
def test_groups_and_missing_gradients(name: str, args: dict[str, Any]) -> None:
    """Each group with options of its own; parameters that join late, pause, or have another type."""
    results = []
    for make in (getattr(tn.optim, name), getattr(torch.optim, name)):
        params = parameters(torch.float32)
        params[2] = nn.Parameter(params[2].detach().double())
        groups = [{"params": params[:2], "lr": 0.05, "weight_decay": 0.3}, {"params": params[2:3]}]
        optimizer = make(groups, **args)
        optimizer.add_param_group({"params": params[3:], "lr": 0.2})
        for i, step in enumerate(gradients(torch.float32)):
            for k, (p, g) in enumerate(zip(params, step, strict=True)):
                p.grad = g.to(p.dtype) if (i + k) % 3 else None
            optimizer.step()
        results.append(params)
    assert_close(*results, scale=0.2)


def test_steps_are_counted_in_any_default_type() -> None:
    """Where that has 16 bits, the count is right above 256 all the same."""
    p, g = nn.Parameter(here.ones(2)), here.ones(2)
    optimizer = tn.optim.AdamW([p])
    torch.set_default_dtype(torch.bfloat16)
    try:
        run(optimizer, [p], iter([[g]] * 258))
    finally:
        torch.set_default_dtype(torch.float32)
    assert optimizer.state[p]["step"] == 258


@pytest.mark.parametrize(("name", "args"), SOME, ids=named)
def test_schedule(name: str, args: dict[str, Any]) -> None:
    """A number, a tensor and a parameter follow the same schedule."""
    results = []
    for make, lr in (
        (getattr(torch.optim, name), 0.1),
        (getattr(tn.optim, name), 0.1),
        (getattr(tn.optim, name), here.tensor(0.1)),
        (getattr(tn.optim, name), tn.Param(0.1, device=here.DEVICE)),
    ):
        params = parameters(torch.float32)
        optimizer = make(params, **{**args, "lr": lr})
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        for step in gradients(torch.float32):
            run(optimizer, params, iter([step]))
            schedule.step()
        results.append(params)
    for other in results[1:]:
        assert_close(other, results[0], scale=0.2)


def test_parameter_sets_the_rate() -> None:
    lr = tn.Param(0.0, device=here.DEVICE)
    p = nn.Parameter(here.ones(3))
    optimizer = tn.optim.SGD([{"params": [p], "lr": lr}])
    p.grad = here.ones(3)
    optimizer.step()
    assert torch.equal(p.data, here.ones(3))
    lr.set(0.5)
    optimizer.step()
    assert torch.equal(p.data, here.full((3,), 0.5))


def test_closure() -> None:
    p = nn.Parameter(here.full((3,), 2.0))
    optimizer = tn.optim.SGD([p], lr=0.25)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 12.0
    assert torch.equal(p.data, here.ones(3))


def test_scaler() -> None:
    """GradScaler unscales, and leaves a step out whose gradients are not finite."""
    p = nn.Parameter(here.ones(3))
    optimizer = tn.optim.AdamW([p], lr=0.1, fused=True)
    scaler = torch.amp.GradScaler(here.DEVICE, init_scale=4.0)
    for bad in (True, False):
        before = p.detach().clone()
        optimizer.zero_grad()
        scaler.scale((p * (float("inf") if bad else 1.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(p.data, before) == bad
    assert_close(optimizer.state[p]["exp_avg"], here.full((3,), 0.1))


@pytest.mark.parametrize(("name", "args"), SOME, ids=named)
def test_copies(name: str, args: dict[str, Any]) -> None:
    """A model and its optimiser, copied, go the same way; versions of parameters count the writes."""
    params = parameters(torch.float32)
    optimizer = getattr(tn.optim, name)(params, **args)
    run(optimizer, params, gradients(torch.float32, 2))
    version = params[0]._version
    peers, other = copy.deepcopy((params, optimizer))
    run(optimizer, params, gradients(torch.float32, 2))
    run(other, peers, gradients(torch.float32, 2))
    assert_close(params, peers)
    assert params[0]._version == version + 2


REFUSED = [
    ("AdamW", {"amsgrad": True}, "tn.optim.AdamW has no amsgrad=True"),
    ("AdamW", {"differentiable": True}, "tn.optim.AdamW has no differentiable=True"),
    ("SGD", {"differentiable": True}, "tn.optim.SGD has no differentiable=True"),
    ("SGD", {"nesterov": True}, "Nesterov momentum requires"),
    ("AdamW", {"lr": -1.0}, "Invalid learning rate"),
    ("Adam", {"amsgrad": True}, "tn.optim.Adam has no amsgrad=True"),
    ("Lion", {"lr": -1.0}, "Invalid learning rate"),
    ("Lion", {"betas": (0.9, 1.0)}, "Invalid beta parameter at index 1"),
    ("Lion", {"weight_decay": -0.1}, "Invalid weight_decay"),
    ("Adafactor", {"d": 0.5}, "Clipping threshold d should be >= 1"),
]


@pytest.mark.parametrize(("name", "args", "message"), REFUSED, ids=lambda v: named(v))
def test_refused(name: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, NotImplementedError), match=message):
        getattr(tn.optim, name)(parameters(torch.float32), **args)
    with pytest.raises((ValueError, NotImplementedError), match="amsgrad"):
        tn.optim.AdamW([{"params": parameters(torch.float32), "amsgrad": True}])


def test_states_that_are_not_ours() -> None:
    """torch's fused implementation says so in its groups, which changes nothing; amsgrad's would be lost."""
    params = parameters(torch.float32)
    theirs = torch.optim.AdamW(params, fused=True)
    run(theirs, params, gradients(torch.float32, 2))
    ours = tn.optim.AdamW(params)
    ours.load_state_dict(theirs.state_dict())
    run(ours, params, gradients(torch.float32, 2))
    step = ours.state[params[0]]["step"]
    assert step.item() == 4 and step.device.type == "cpu" and theirs.state[params[0]]["step"].item() == 2
    with pytest.raises(NotImplementedError, match="no amsgrad=True"):
        ours.load_state_dict(torch.optim.AdamW(params, amsgrad=True).state_dict())


def test_sparse_gradients_are_refused() -> None:
    table = nn.Embedding(4, 3, sparse=True, device=here.DEVICE)
    table(here.tensor([1])).sum().backward()
    pairs: list[tuple[Make, str]] = [(tn.optim.SGD, "SGD")]
    pairs += [(make, "SparseAdam") for make in (tn.optim.AdamW, tn.optim.Adam, tn.optim.Lion, tn.optim.Adafactor)]
    for ours, theirs in pairs:
        with pytest.raises(NotImplementedError, match=rf"no sparse gradients; torch\.optim\.{theirs} does"):
            ours(table.parameters()).step()


# ---- captured ------------------------------------------------------------------------------------------------------


def test_capturable() -> None:
    """The count of steps is on the device; the same as torch's."""
    results = []
    for make in (tn.optim.AdamW, torch.optim.AdamW):
        params = parameters(torch.float32)
        optimizer = make(params, lr=0.1, capturable=here.DEVICE != "cpu")
        optimizer.param_groups[0]["capturable"] = True
        if make is torch.optim.AdamW and here.DEVICE == "cpu":  # torch's is for GPUs alone
            optimizer.param_groups[0]["capturable"] = False
        run(optimizer, params, gradients(torch.float32))
        results.append(params)
    assert_close(*results, scale=0.2)


def test_capturable_wants_the_same_parameters() -> None:
    params = parameters(torch.float32)
    optimizer = tn.optim.AdamW(params, capturable=True)
    run(optimizer, params, gradients(torch.float32, 2))
    assert optimizer.state[params[0]]["step"].device == params[0].device
    params[1].grad = None
    with pytest.raises(NotImplementedError, match="must stay the same ones"):
        optimizer.step()
    uneven = copy.deepcopy(optimizer.state_dict())
    uneven["state"][1]["step"].add_(1)
    with pytest.raises(NotImplementedError, match="they have made 2, 3"):
        optimizer.load_state_dict(uneven)


@pytest.mark.skipif(here.DEVICE == "cpu", reason="needs a GPU")
def test_graph() -> None:
    """A captured step, replayed with other gradients and another rate, is torch's."""
    ours, theirs = parameters(torch.float32), parameters(torch.float32)
    lr = tn.Param(0.1, device=here.DEVICE)
    mine = tn.optim.AdamW(ours, lr=lr, capturable=True)
    other = torch.optim.AdamW(theirs, lr=0.1)
    run(mine, ours, gradients(torch.float32, 3))
    run(other, theirs, gradients(torch.float32, 3))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mine.step()
    for i, step in enumerate(gradients(torch.float32, 10, seed=6)):
        lr.set(0.1 / (i + 1))
        other.param_groups[0]["lr"] = 0.1 / (i + 1)
        for p, g in zip(ours, step, strict=True):
            assert p.grad is not None
            p.grad.copy_(g)
        graph.replay()
        run(other, theirs, iter([step]))
    assert_close(ours, theirs, scale=0.2)


# ---- clipping ------------------------------------------------------------------------------------------------------

CLIPS: list[dict[str, Any]] = [
    {"max_norm": 1.0},
    {"max_norm": 1e6},
    {"max_norm": 2.0, "norm_type": 1.0},
    {"max_norm": 2.0, "norm_type": float("inf")},
    {"max_norm": 2.0, "error_if_nonfinite": True},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, None], ids=str)
@pytest.mark.parametrize("args", CLIPS, ids=named)
def test_clip_grad_norm(args: dict[str, Any], dtype: torch.dtype | None) -> None:
    ours, theirs = ([*parameters(dtype or torch.float32), nn.Parameter(here.ones(2))] for _ in range(2))
    for params in (ours, theirs):
        for p, g in zip(params, next(gradients(dtype or torch.float32)), strict=False):  # the last one has none
            p.grad = g.clone()
        if dtype is None:
            params[0].data = params[0].data.double()
            params[0].grad = params[0].grad.double() if params[0].grad is not None else None
    have = tn.optim.clip_grad_norm_(ours, **args)
    want = torch.nn.utils.clip_grad_norm_(theirs, **args)
    bound = "bf16" if dtype == torch.bfloat16 else "f32"
    assert_close(have, want, bound, scale=0.2)
    assert_close([p.grad for p in ours], [p.grad for p in theirs], bound, scale=0.2)


def test_clip_takes_a_parameter_and_a_single_tensor() -> None:
    p = nn.Parameter(here.ones(4))
    p.grad = here.full((4,), 3.0)
    norm = tn.optim.clip_grad_norm_(p, tn.Param(1.0, device=here.DEVICE))
    assert_close(norm, here.tensor(6.0))
    assert_close(p.grad, here.full((4,), 0.5))
    assert tn.optim.clip_grad_norm_([nn.Parameter(here.ones(4))], 1.0) == 0.0
    p.grad = here.full((4,), torch.inf)
    with pytest.raises(RuntimeError, match="non-finite"):
        tn.optim.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)


def test_master_weights_of_a_group() -> None:
    """A group may have its own; a state that comes with masters does not bring them back where they are not wanted."""
    p, q = (nn.Parameter(here.ones(4, dtype=torch.bfloat16)) for _ in range(2))
    for one in (p, q):
        one.grad = torch.ones_like(one)
    optimizer = tn.optim.AdamW([{"params": [p], "master_weights": True}, {"params": [q]}], lr=0.1)
    optimizer.step()
    assert "master" in optimizer.state[p] and "master" not in optimizer.state[q]
    optimizer.param_groups[0]["master_weights"] = False
    with torch.no_grad():
        p.fill_(5.0)
    optimizer.step()
    assert p.float().mean() > 4.5


def test_weight_decay_that_is_not_decoupled_is_refused() -> None:
    p = nn.Parameter(here.ones(3))
    with pytest.raises(NotImplementedError, match="AdamW decouples weight decay"):
        tn.optim.AdamW([{"params": [p], "decoupled_weight_decay": False}], lr=0.1)


def test_clipping_of_what_occurs_twice() -> None:
    results = []
    for clip in (tn.optim.clip_grad_norm_, nn.utils.clip_grad_norm_):
        p = nn.Parameter(here.ones(2))
        p.grad = here.ones(2)
        results.append((clip([p, p], 0.5), p.grad))
    assert_close(results[0], results[1])


def test_clipping_of_complex_gradients() -> None:
    p = nn.Parameter(here.ones(2, dtype=torch.complex64))
    p.grad = here.tensor([3 + 4j, 0])
    assert_close(tn.optim.clip_grad_norm_(p, 1.0), here.tensor(5.0))
    assert_close(torch.view_as_real(p.grad), here.tensor([[0.6, 0.8], [0.0, 0.0]]))
