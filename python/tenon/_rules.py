"""Gradient rules for all frameworks: what of a rule a backward pass needs, and a walk over it for those that trace.

PyTorch's backward passes are written out as source from the same parts (torch/_grad.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from tenon._lib import why_no_gradient
from tenon.contract import COMPLEX, FLOATS, Argument, Attr, Input, Operator, Output, Source, Statement, fused, table
from tenon.infer import Binding, Require, raise_unless


def called(statement: Statement, fast: bool = False) -> Operator:
    """The operator that a statement of a rule calls."""
    return table()[statement.op] if statement.formula is None else fused(statement.formula, fast)


def may_need_grad(op: Operator, param: Input | Attr) -> bool:
    """Whether an argument may require a gradient."""
    if isinstance(param, Attr) or param.list or param.inplace:
        return False
    kinds = param.type.get("fixed") or op.types.get(param.type.get("var", ""), ("f32",))
    return not (FLOATS | COMPLEX).isdisjoint(kinds)


# ---- parts of a rule -------------------------------------------------------------------------------------------------


def statements_of(op: Operator) -> Sequence[Statement]:
    return op.rule.statements if op.rule else ()


def used(op: Operator, kind: str) -> list[str]:
    """What the rule reads of the call: names of its inputs ("input"), outputs ("output") or attributes ("attr")."""
    return list(dict.fromkeys(s.name for statement in statements_of(op) for s in statement.sources if s.kind == kind))


def asked_for(op: Operator) -> set[str]:
    """The want_ attributes that a call which is differentiated sets: of outputs that the rule reads."""
    names = used(op, "output")
    return {o.want_attr for o in op.outputs if o.want_attr and (o.want == "grad" or o.name in names)}


def has_gradient(op: Operator) -> list[str]:
    """The inputs that the rule gives gradients of."""
    return list(dict.fromkeys(r for s in statements_of(op) if not s.local for r in s.results))


def without_gradient(op: Operator) -> list[str]:
    """Inputs that may ask for a gradient and that the rule has none for. Of a formula there are none: it is 0."""
    if any(s.formula is not None for s in statements_of(op)):
        return []
    known = has_gradient(op)
    return [p.name for p in op.params if may_need_grad(op, p) and p.name not in known]


def serves(op: Operator, statement: Statement) -> list[str]:
    """The inputs whose gradients a statement is needed for."""
    if not statement.local:
        return [r for r in statement.results if any(p.name == r for p in op.params)]
    reads = [s for s in statements_of(op) if any(a.kind == "local" and a.name in statement.results for a in s.sources)]
    return list(dict.fromkeys(name for s in reads for name in serves(op, s)))


def _may_be_float(output: Output) -> bool:
    kinds = output.type.get("fixed")
    return kinds is None or bool(FLOATS & set(kinds))


def is_right_once(op: Operator, statement: Statement) -> bool:
    """Whether a statement makes gradients of an output that nothing can be differentiated through, and of no input: a
    second derivative would be 0 without anybody noticing. Places in a tensor, which are integers, have none."""
    smooth = {*(op.rule.differentiable if op.rule else ()), *(o.name for o in op.outputs if not _may_be_float(o))}
    hidden = any(s.kind == "output" and s.name not in smooth for s in statement.sources)
    return hidden and all(s.kind != "input" for s in statement.sources)


def is_accounted_for(op: Operator, output: str) -> bool:
    """Whether an output that the rule reads is no argument of second derivatives: nothing can be differentiated through
    it, and what reads it has a rule, marked `~`, that takes it for what the inputs make it: layer_norm's mean."""
    if op.rule is None or output in op.rule.differentiable:
        return False
    readers = [s for s in op.rule.statements if any((a.kind, a.name) == ("output", output) for a in s.sources)]
    rules = [called(s).rule for s in readers if s.formula is None]
    return bool(rules) and len(rules) == len(readers) and all(rule is not None and rule.stands_in for rule in rules)


def is_required(op: Operator, output: str, fast: bool = False) -> bool:
    """Whether the rule cannot do without the gradient of an output: it is 0 where it is absent."""
    for statement in statements_of(op):
        optional = {p.name for p in called(statement, fast).params if p.optional}
        for source in statement.sources:
            if source.kind == "doutput" and source.name == output and source.param not in optional:
                return True
    return False


class Passed(NamedTuple):
    """The gradient of an input that is the gradient of an output itself, as those of a sum are."""

    d: Source
    like: Source | None  # only where d has the shape of this one; None: it always has


def passed_on(op: Operator, statement: Statement, fast: bool = False) -> dict[str, Passed]:
    """Results of a statement that need no memory and no kernel, by name."""
    if statement.formula is None or statement.local or len(statements_of(op)) > 1:
        return {}
    callee, passed = called(statement, fast), {}
    sources = {s.param: s for s in statement.sources}
    inputs = {p.name: p for p in callee.inputs if not p.optional and not p.list}
    body = _body(statement.formula)
    for output, result in zip(callee.outputs, statement.results, strict=False):
        words = re.fullmatch(r"sum_to\((\w+), (\w+)\)|(\w+)", body.get(output.name, ""))
        d, like = (words[1] or words[3], words[2]) if words else ("", None)
        if d not in inputs or sources[d].kind != "doutput" or inputs[d].type != output.type:
            continue
        if like is None and inputs[d].shape == output.shape:
            passed[result] = Passed(sources[d], None)
        elif like in inputs:
            passed[result] = Passed(sources[d], sources[like])
    return passed


def twins(op: Operator, statement: Statement, fast: bool = False) -> dict[str, str]:
    """Results of a statement that are another one of its results, as those of a sum's terms are: which."""
    if statement.formula is None or statement.local or len(statements_of(op)) > 1:
        return {}
    outputs = called(statement, fast).outputs
    by_name = {o.name: (o, r) for o, r in zip(outputs, statement.results, strict=False)}
    body, found = _body(statement.formula), {}
    for name, (output, result) in by_name.items():
        other, twin = by_name.get(body.get(name, ""), (None, ""))
        if other is not None and (other.type, other.shape) == (output.type, output.shape):
            found[result] = twin
    return found


def _body(formula: str) -> dict[str, str]:
    """The statements of a rule's formula: names and what they are."""
    parts = (part.partition(" = ") for part in formula.partition(" : ")[2].split("; "))
    return {name: value for name, _, value in parts}


# ---- what is refused -------------------------------------------------------------------------------------------------


def no_rule(op: Operator) -> NotImplementedError:
    why = why_no_gradient(op.address) if op.grad == "derived" else ""
    message = f"{op.name} has no gradient rule, so nothing can be differentiated through it"
    return NotImplementedError(f"{message}: {why}" if why else message)


def no_forward_mode(op: Operator) -> str:
    return f"{op.name}: there is no forward mode (jvp, jacfwd, hessian); vjp and jacrev go backwards"


def no_gradient_for(op: Operator, name: str) -> NotImplementedError:
    return NotImplementedError(f"{op.name} has no gradient for {name}")


def refuse(op: Operator, wanted: Collection[str]) -> None:
    """Raises where a gradient of one of these inputs is asked for that there is not."""
    for param in op.inputs:
        if param.name in wanted and param.list:
            raise NotImplementedError(f"{op.name}: there is no gradient for {param.name}, a list of tensors")
        if param.name in wanted and param.inplace:
            raise NotImplementedError(f"{op.name}: {param.name} is updated, and there is no gradient for it")
    if op.rule is None and wanted:
        raise no_rule(op)
    for name in without_gradient(op):
        if name in wanted:
            raise no_gradient_for(op, name)


# ---- the walk --------------------------------------------------------------------------------------------------------


class Backend(NamedTuple):
    """What a framework does for the walk."""

    run: Callable[[Operator, Mapping[str, Any]], Sequence[Any]]  # all outputs, from inputs and attributes by name
    zeros: Callable[[str, Sequence[Any]], Any]  # of an element type and a shape
    shape: Callable[[Any], Sequence[Any]]  # of a tensor
    require: Require = raise_unless  # what a condition on sizes goes through


class Recorded(NamedTuple):
    """What a call leaves for its gradient."""

    op: Operator
    operands: Sequence[Argument]  # types and shapes of all inputs
    attrs: Mapping[str, Any]  # all of them, as contracts see them; `want_` ones as the call had them
    inputs: Mapping[str, Any]  # those that used(op, "input") names; None: absent
    outputs: Mapping[str, Any]  # those that used(op, "output") names
    fast: bool = False  # formulas of the rule are compiled so


class _Walk:
    """One backward pass."""

    def __init__(self, backend: Backend, call: Recorded, wanted: Collection[str], grads: Mapping[str, Any]) -> None:
        self.backend = backend
        self.call = call
        self.wanted = wanted
        self.grads = grads
        self.locals: dict[str, Any] = {}
        self.made: dict[str, Any] = {}  # gradients of inputs

    @cached_property
    def binding(self) -> Binding:
        return Binding(self.call.op, self.call.operands, self.call.attrs, self.backend.require)

    def value(self, source: Source) -> Any:
        if source.kind == "dim":
            return self.binding.scope.dim(source.name)
        if source.kind == "pack":
            return self.binding.scope.pack(source.name)
        if source.kind == "literal":
            return source.value
        places = {
            "input": self.call.inputs,
            "output": self.call.outputs,
            "doutput": self.grads,
            "attr": self.call.attrs,
            "local": self.locals,
        }
        return places[source.kind].get(source.name)

    def pass_on(self, statement: Statement) -> set[str]:
        """Takes over the gradients that are there already; says whose."""
        done = set()
        for name, (d, like) in passed_on(self.call.op, statement, self.call.fast).items():
            given, other = self.value(d), None if like is None else self.value(like)
            fits = like is None or tuple(self.backend.shape(given)) == tuple(self.backend.shape(other))
            if name in self.wanted and fits:
                self.made[name] = given
                done.add(name)
        return done

    def do(self, statement: Statement) -> None:
        if not any(name in self.wanted for name in serves(self.call.op, statement)):
            return
        done = self.pass_on(statement)
        computed = {*self.wanted} - done
        same = {r: t for r, t in twins(self.call.op, statement, self.call.fast).items() if {r, t} <= computed}
        results = [r for r in statement.results if statement.local or (r in self.wanted and r not in {*done, *same})]
        if not results:
            return
        callee = called(statement, self.call.fast)
        given = {s.param: self.value(s) for s in statement.sources}
        for output, result in zip(callee.outputs, statement.results, strict=False):
            if output.want_attr is not None:
                given[output.want_attr] = result in results
        for result, value in zip(statement.results, self.backend.run(callee, given), strict=False):
            if statement.local:
                self.locals[result] = value
            elif result in results and value is not None:  # a second statement for the same input adds to the first
                self.made[result] = self.made[result] + value if result in self.made else value
        self.made.update({result: self.made[twin] for result, twin in same.items()})


def differentiate(
    backend: Backend, call: Recorded, wanted: Collection[str], grads: Mapping[str, Any]
) -> dict[str, Any]:
    """The gradients of the inputs `wanted`, by name; what is not in the result is 0.

    `grads` has those of outputs; None, or not in it: nobody used the output.
    """
    op = call.op
    present = {o.name: grads[o.name] for o in op.outputs if grads.get(o.name) is not None}
    if not present or not wanted:
        return {}
    refuse(op, wanted)
    for name in present:
        if op.rule is None or name not in op.rule.differentiable:
            raise no_gradient_for(op, name)
    walk = _Walk(backend, call, wanted, present)
    missing = [i for i, o in enumerate(op.outputs) if o.name not in present and is_required(op, o.name, call.fast)]
    for i in missing:
        spec = walk.binding.outputs()[i]
        if spec is not None:
            present[op.outputs[i].name] = backend.zeros(*spec)
    for statement in statements_of(op):
        walk.do(statement)
    return walk.made
