"""Which samples the tests of frameworks call operators with (tests/shared/samples.py)."""

from __future__ import annotations

import pytest
from samples import (
    Case,
    all_are_wanted,
    cases,
    dealt,
    each_operator,
    every_sample,
    family,
    features,
    one_each,
    pairs,
    traits,
)

import tenon
from tenon.contract import Operator


def names(chosen: list[Case]) -> set[str]:
    return {case.op.name for case in chosen}


def is_formula(op: Operator) -> bool:
    return op.formula is not None


def test_every_operator_is_called() -> None:
    ops = {name: op for name, op in tenon.ops().items() if op.samples}  # those of the tests' plugin have none
    assert names(cases(Case)) == names(each_operator(Case)) == set(ops)
    smooth = {name for name, op in ops.items() if op.rule is not None}
    assert names(cases(Case, 300, lambda c: c.op.rule is not None)) == smooth


def kinds(chosen: list[Case]) -> set[object]:
    return {family(case.op) for case in chosen}.union(*map(pairs, chosen))


def test_operators_are_called_with_all_that_an_adapter_can_tell_apart() -> None:
    assert kinds(cases(Case)) == kinds(every_sample(Case))
    assert all_are_wanted() or len(cases(Case)) < 0.7 * len(every_sample(Case))


def test_few_samples_have_all_traits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENON_TEST_ALL", raising=False)
    few, every = one_each(Case), [case for case in every_sample(Case, 4096) if case.numel]
    assert set().union(*map(traits, few)) == set().union(*map(traits, every))
    assert len(few) < 0.7 * len(each_operator(Case))
    monkeypatch.setenv("TENON_TEST_ALL", "1")
    assert one_each(Case) == each_operator(Case)


def test_everything_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENON_TEST_ALL", "1")
    own = [case for case in every_sample(Case) if not is_formula(case.op)]
    assert [case for case in cases(Case) if not is_formula(case.op)] == own
    assert len(dealt(own, "abc")) == 3 * len(own)


def test_ways_are_dealt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case gets some, every way is met about as often as the others, and operators begin with different ones."""
    monkeypatch.delenv("TENON_TEST_ALL", raising=False)
    chosen, ways = every_sample(Case), ["a", "b", "c", "d", "e"]
    for each in (1, 2):
        made = dealt(chosen, ways, each)
        assert [case for case, _ in made] == [case for case in chosen for _ in range(each)]
        assert len({(str(case), way) for case, way in made}) == len(made)
        counts = [sum(way == one for _, way in made) for one in ways]
        assert max(counts) < 1.5 * min(counts)
    firsts = {way for case, way in dealt(each_operator(Case), ways)}
    assert firsts == set(ways)
    softmax = {way for case, way in dealt(chosen, ways) if case.op.name == "softmax"}
    assert softmax == set(ways)


def test_families() -> None:
    """Names and numbers make none, what adapters do does."""
    ops = tenon.ops()
    assert family(ops["gelu"]) == family(ops["silu"])  # x in, y out, the gradient from x
    assert family(ops["gelu"]) != family(ops["sigmoid"])  # whose gradient reads y
    assert family(ops["add"]) != family(ops["mul"])  # the gradient of one is passed on
    assert family(ops["mse"]) != family(ops["huber"])  # one attribute more
    assert family(ops["sgd_step"]) != family(ops["sgd_step_list"])


def test_features() -> None:
    """Of the samples of rms_norm: without a weight, with one, of another type, of no rows, with an attribute."""
    assert len({frozenset(features(case)) for case in every_sample(Case) if case.op.name == "rms_norm"}) > 4
