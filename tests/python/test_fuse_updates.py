"""Formulas in PyTorch that update tensors in place."""

from __future__ import annotations

import here
import pytest
import torch
from cases import assert_close
from torch import Tensor

import tenon.torch as tn

STEP = """
step(p: T[*s]!, g: G[*s], m: f32[*s]!, w: f32[*s]!?, lr: f32[], beta: float = 0.9) :
    m = beta * m + (1 - beta) * g
    p = p - lr * m
    w = w + 1
"""
# Updates and an output.
SHIFT = "shift(x: T[*s]!, k: float = 2.0) -> y: T[*s] : y = x * k; x = x + 1"
BOTH = "both(x: T[*s]!) -> y: T[*s]?, z: T[*s] : y = x * 2; z = x * 3; x = x + 1"


def stepped(p: Tensor, g: Tensor, m: Tensor, lr: float) -> tuple[Tensor, Tensor]:
    m = 0.9 * m + 0.1 * g
    return p - lr * m, m


def test_updates() -> None:
    step = tn.fuse(STEP)
    p, g, m, w = here.randn(5, 6), here.randn(5, 6), here.randn(5, 6), here.zeros(5, 6)
    want = stepped(p, g, m, 0.1)
    assert step(p, g, m, w, 0.1) is None
    assert_close((p, m, w), (*want, torch.ones_like(w)))
    want = stepped(p, g, m, 0.5)
    step(g=g, p=p, m=m, lr=tn.Param(0.5, device=here.DEVICE))  # w is absent
    assert_close((p, m), want)
    assert "Updates p, m, w in place." in (step.__doc__ or "") and "Returns" not in (step.__doc__ or "")
    x = here.zeros(3)
    assert_close(
        (tn.fuse(SHIFT)(x + 1), tn.fuse(SHIFT)(x, k=3.0), x), (here.full((3,), 2.0), here.zeros(3), here.ones(3))
    )


def test_updates_of_views() -> None:
    double = tn.fuse("x! = x * y")
    whole = here.ones(4, 6)
    double(whole.t()[::2, 1:], here.full((3, 3), 3.0))
    want = here.ones(4, 6)
    want[1:, ::2] = 3
    assert_close(whole, want)
    with pytest.raises(ValueError, match="x"):
        double(here.ones(3, 1), here.ones(3, 4))  # the result has no room in x
    with pytest.raises(ValueError, match="x"):
        double(here.ones(1).expand(4), here.ones(4))  # its elements share memory


def test_updates_and_gradients() -> None:
    double = tn.fuse("x! = x * y")
    x, y = here.ones(3), here.ones(3)
    leaf = here.ones(3, requires_grad=True)
    for call in (double, lambda x, y: torch.ops.tenon.fuse.inplace("x! = x * y", [x], [0], [None, y])):
        with pytest.raises(RuntimeError, match="x is updated in place, so it cannot require a gradient"):
            call(leaf, y)
        with pytest.raises(RuntimeError, match="y requires a gradient, which an update in place does not give"):
            call(x, leaf)
        with torch.no_grad():
            call(leaf, y * 2)
        assert_close(leaf.detach(), here.full((3,), 2.0))
        leaf.detach().fill_(1)
        before = x._version
        call(x, y)
        assert x._version == before + 1
        squares = (leaf * x).square()  # keeps x for the backward pass
        call(x, y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            squares.sum().backward()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_updates_compile(backend: str) -> None:
    torch._dynamo.reset()
    step, shift, both = tn.fuse(STEP), tn.fuse(SHIFT), tn.fuse(BOTH)

    @torch.compile(backend=backend, fullgraph=True, dynamic=True)
    def function(p: Tensor, g: Tensor, m: Tensor, w: Tensor, lr: Tensor) -> Tensor:
        step(p, g * 2, m, None, lr)
        step(p, g, m, w, lr, beta=0.9)
        y, z = both(m, want_y=True)
        return shift(m, k=3.0) + p + y + z + both(g)

    for n in (5, 7):
        p, g, m, w = here.randn(n, 6), here.randn(n, 6), here.randn(n, 6), here.zeros(n, 6)
        lr = here.tensor(0.1)
        q, k = stepped(p, g * 2, m, 0.1)
        q, k = stepped(q, g, k, 0.1)
        made = function(p, g, m, w, lr)
        assert_close((made, p, m, w), ((k + 1) * 3 + q + 5 * k + 3 * (g - 1), q, k + 2, torch.ones_like(w)))


MOVES = ["n_p = q; n_q = p", "n_p = q + p; n_q = p", "n_p = f64(q); n_q = min(p, p)", "n_q = p; n_p = 2 * p"]


@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("shape", [(3,), (2, 3000), (70000,)], ids=str)
def test_updates_read_first(moves: str, shape: tuple[int, ...]) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        p, q = (here.randn(*shape).to(dtype) for _ in range(2))
        given = {"p": p.clone(), "q": q.clone(), "f64": lambda t: t, "min": torch.minimum}
        exec(moves, given)
        tn.fuse(f"f(p: T[*s]!, q: T[*s]!) : {moves}; p = n_p; q = n_q")(p, q)
        assert_close([p, q], [given["n_p"], given["n_q"]], "bf16" if dtype == torch.bfloat16 else "f32")


def test_updates_of_the_operator_of_torch() -> None:
    x, y = here.ones(3), here.ones(3)
    inplace = torch.ops.tenon.fuse.inplace
    for args in (("x! = x * y", [x], [0], [None, y]), (SHIFT, [x, y], [0, 1], [None], "k=3.0")):
        torch.library.opcheck(inplace, args)
    for written, places, given in (
        ([x] * 40, [0] * 40, [None, y]),
        ([x], [1], [None, y]),
        ([x], [0, 1], [None, y]),
        ([], [], [x, y]),
        ([x], [5], [None, y]),
    ):
        with pytest.raises(ValueError, match="formula"):
            inplace("x! = x * y", written, places, given)
    for operator in (torch.ops.tenon.fuse, torch.ops.tenon.fuse.raw):
        with pytest.raises(ValueError, match=r"tenon::fuse\.inplace"):
            operator("x! = x * y", [x, y])
    with pytest.raises(ValueError, match="another layout"):
        inplace(SHIFT, [x, here.ones(4)], [0, 1], [None])


def test_export_of_updates() -> None:
    class Step(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            h = x * 1
            return tn.fuse(SHIFT)(h) + h

    x = here.randn(3)
    exported = torch.export.export(Step(), (x,))
    assert_close(exported.module()(x), 3 * x + 1)


def test_optimiser_steps() -> None:
    p, g = here.randn(5, 7), here.randn(5, 7)
    m, v = here.zeros(5, 7), here.zeros(5, 7)
    parameter = torch.nn.Parameter(p.clone())
    parameter.grad = g
    adam = torch.optim.AdamW([parameter], lr=0.01, weight_decay=0.1)
    for step in range(1, 4):
        adam.step()
        tn.adamw_step(p, g, m, v, lr=0.01, step=float(step), weight_decay=0.1)
        assert_close(p, parameter.detach())


@pytest.mark.parametrize("n", [7, 1000, 50257, 400_000])
@pytest.mark.parametrize("rows", [0, 3])
def test_values_that_all_elements_read_are_updated_last(n: int, rows: int) -> None:
    """A step, or one for each row: threads, and pieces of a long row, read it before anybody writes the next one."""
    dims = "r, " if rows else ""
    made = tn.fuse(f"f(p: T[{dims}n]!, at: i64[{dims.rstrip(', ')}]!) : now = at + 1; p = now + 0 * p; at = now")
    shape = (rows, n) if rows else (n,)
    p, at = torch.zeros(shape, device=here.DEVICE), torch.arange(rows or 1, device=here.DEVICE).view(shape[:-1])
    for step in range(1, 4):
        made(p, at)
        expected = (torch.arange(rows or 1, device=here.DEVICE) + step).view(shape[:-1])
        assert torch.equal(at, expected)
        assert torch.equal(p, expected[..., None].expand(shape).to(p.dtype))
