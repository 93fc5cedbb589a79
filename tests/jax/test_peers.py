"""The JAX code of bench/jax_peers.py computes what each operator does, forward and backward."""

from __future__ import annotations

import jax
import pytest
from functional import assert_close

import tenon
from tenon._public import shown_outputs

pytest.importorskip("torch", minversion="2.10")  # the table of calls is PyTorch's too

from jax_operators import SIZES, Case, cases
from jax_peers import OPERATORS
from peers import OPERATORS as CALLS

CASES = cases(OPERATORS, SIZES["small"], ("f32",))
WITH_GRADIENT = {case.op for case in CASES if case.backward}
TABLE = {name for name in tenon.ops() if not name.endswith("_grad")}  # before tests load plugins


def test_everything_has_a_peer() -> None:
    assert set(OPERATORS) == TABLE


def is_new(case: Case) -> bool:
    """Beside the gradient its program returns the first output, which is all that most operators have."""
    return case.backward or case.op not in WITH_GRADIENT or len(shown_outputs(tenon.ops()[case.op])) > 1


@pytest.mark.parametrize("case", filter(is_new, CASES), ids=str)
def test_same_as_jax(case: Case) -> None:
    """Two calls of each, of which the second gets what the first one updated."""
    sides = case.sides()
    for _ in range(2):
        have, want = sides["tenon"](), sides["jit"]()
        if CALLS[case.op].random:
            assert jax.tree.map(lambda a: a.shape, have) == jax.tree.map(lambda a: a.shape, want)
        else:
            assert_close(have, want, scale=10)
            assert_close(sides["tenon"].state, sides["jit"].state, scale=10)
