"""out=: a result goes into a tensor that is there already."""

from __future__ import annotations

import inspect

import here
import pytest
import torch
from cases import Case, one_each

import tenon.torch as tn
from tenon._public import identifier
from tenon.torch import _direct
from tenon.torch._ops import torch_op
from tenon.torch._public import functions


def takes_out(case: Case) -> bool:
    return "out" in inspect.signature(functions[identifier(case.op.name)]).parameters


@pytest.mark.parametrize("case", one_each(takes_out), ids=str)
def test_every_operator(case: Case) -> None:
    args = case.public(case.make())
    function = functions[identifier(case.op.name)]
    want = function(**args)
    out = torch.full_like(want, 7)
    assert function(**args, out=out) is out
    assert torch.equal(out, want)


def test_views_and_inputs() -> None:
    """Strides are the caller's; an input may be written over."""
    x, all_of_it = here.randn(3, 4), here.zeros(3, 8)
    tn.square(x, out=all_of_it[:, ::2])
    assert torch.equal(all_of_it[:, ::2], x * x) and not all_of_it[:, 1::2].any()
    want = x * x
    assert torch.equal(tn.square(x, out=x), want)


def test_written_at_once() -> None:
    """Where it is laid out as a result would be, nothing is copied, and torch knows that it was written."""
    x, out = here.randn(3, 4), here.zeros(3, 4)
    version = out._version
    made = torch_op("relu")
    if _direct.available:
        assert made.call_into(x, out) is out
        assert out._version == version + 1
    assert made.call_into(x, out.T.contiguous().T) is not out
    assert torch.equal(made.call_into(x, here.zeros(2, 2)), torch.relu(x))


def test_overlap() -> None:
    """A tensor that shares some of its memory with an input gets what one of its own would get."""
    memory = here.randn(6, 5)
    want = torch.softmax(memory[:-1], -1)
    tn.softmax(memory[:-1], out=memory[1:])
    torch.testing.assert_close(memory[1:], want)


def test_formula_and_compiled() -> None:
    x, out = here.randn(3, 4), here.zeros(3, 4)
    assert torch.equal(tn.fuse("x + x")(x, out=out), x + x)
    compiled = torch.compile(lambda t, o: tn.relu(t, out=o), fullgraph=True, backend="aot_eager")
    compiled(x, out)
    assert torch.equal(out, torch.relu(x))


def test_refused() -> None:
    x, out = here.randn(3, 4), here.zeros(3, 4)
    with pytest.raises(ValueError, match=r"square: out has shape \[4, 3\], needs \[3, 4\]"):
        tn.square(x, out=out.T)
    with pytest.raises(TypeError, match=r"out has type torch.float64, needs torch.float32"):
        tn.square(x, out=out.double())
    with pytest.raises(RuntimeError, match="takes no part in gradients"):
        tn.square(x.clone().requires_grad_(), out=out)
    with pytest.raises(RuntimeError, match="takes no part in gradients"):
        tn.square(x, out=out.clone().requires_grad_())
    with torch.no_grad():
        tn.square(x.clone().requires_grad_(), out=out)
    assert torch.equal(out, x * x)
    with pytest.raises(TypeError, match="out"):
        tn.sgd_step(x, x, out, 0.1, out=out)
