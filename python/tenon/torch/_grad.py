"""Gradients: an operator's rule becomes a torch.autograd.Function, by writing its source.

Writing it out, instead of walking the rule at every call, makes a call cost what a hand-written Function costs. The
code for softmax, whose rule is `x: softmax_grad(y, dy)`:

    class softmax(Function):
        @staticmethod
        def forward(ctx, x, mask, axis, scale, causal):
            _o_y = _run(x, mask, axis, scale, causal)
            ctx.save_for_backward(_o_y)
            ctx.kept = (axis, scale)
            return _o_y

        @staticmethod
        def backward(ctx, _d_y):
            (_o_y,) = ctx.saved_tensors
            axis, scale = ctx.kept
            _g_x = _softmax_grad(_o_y, _d_y, axis, scale)
            return _g_x, None, None, None, None
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import _SingleLevelFunction

from tenon import _rules
from tenon._public import compile_source, identifier
from tenon.contract import Attr, Input, Operator, Output, Source, Statement


def sizes_source(op: Operator, kind: str, name: str) -> str:
    """An expression for a dimension or a pack of the call, out of the shape of an input that is always there."""
    for param in op.inputs:
        if param.optional or param.list or isinstance(param.shape, dict):
            continue
        items = param.shape
        long = [i for i, item in enumerate(items) if "expr" not in item]  # stands for any number of dimensions
        for i, item in enumerate(items):
            if item.get("broadcast"):
                continue
            behind = len(items) - i
            if kind == "dim" and item.get("expr") == {"dim": name}:
                return f"{identifier(param.name)}.shape[{i if not long or i < long[0] else -behind}]"
            if kind == "pack" and item.get("pack") == name:
                return f"tuple({identifier(param.name)}.shape[{i}:{1 - behind if behind > 1 else ''}])"
    return f"_size({kind!r}, {name!r}, {_tuple([identifier(p.name) for p in op.params])})"


def _tuple(parts: Sequence[str]) -> str:
    return "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"


class _Writer:
    """Writes the Function of one operator that returns the outputs `shown` (all of them in functional form)."""

    def __init__(self, op: Operator, fast: bool, shown: Sequence[int], functional: bool, inside: bool) -> None:
        self.op = op
        self.inside = inside
        self.fast = fast
        self.shown = [op.outputs[i] for i in shown]
        self.functional = functional
        self.params = [identifier(p.name) for p in op.params]
        # In functional form nothing is updated: what would be comes out as well.
        self.updates = [f"_u_{p.name}" for p in op.inputs if p.inplace] if functional else []
        self.outs = [f"_o_{o.name}" for o in op.outputs] + self.updates
        self.statements = _rules.statements_of(op)
        self.wanted = [p for p in op.params if _rules.may_need_grad(op, p)]
        self.taken: set[tuple[Statement, int]] = set()  # calls with a parameter whose memory they may take
        sources = [s for statement in self.statements for s in statement.sources]
        self.saved = [identifier(n) for n in _rules.used(op, "input")] + [f"_o_{n}" for n in _rules.used(op, "output")]
        self.kept: dict[str, str] = {}  # variable of the backward: what it is in the forward
        for s in sources:
            if s.kind == "attr":
                self.kept[identifier(s.name)] = identifier(s.name)
            elif s.kind in ("dim", "pack"):
                self.kept[f"_{s.kind}_{s.name}"] = sizes_source(op, s.kind, s.name)
        self.smooth = [o for o in self.shown if op.rule is None or o.name in op.rule.differentiable]
        # All that a gradient has of the inputs may be an output that nothing can be differentiated through: it is right
        # once. Transforms of torch.func always ask for more, and are told when they use it, which takes the inputs;
        # others do not keep these.
        self.once = any(_rules.is_right_once(op, statement) for statement in self.statements)
        if self.once and inside:
            self.saved += [n for n in map(identifier, _rules.has_gradient(op)) if n not in self.saved]
        # Gradients that the rule cannot do without: 0 where they are absent, unless all are.
        self.filled = [o for o in self.smooth if _rules.is_required(op, o.name, fast)] if len(self.smooth) > 1 else []

    # ---- forward

    def forward(self) -> list[str]:
        run = f"{_tuple(self.outs) if len(self.outs) > 1 else self.outs[0]} = _run({', '.join(self._arguments())})"
        returned = [self._returned(o) for o in self.shown]
        result = returned[0] if len(returned) == 1 else _tuple(returned)
        if not self.functional:
            head = f"def forward(ctx, {', '.join(self.params)}):"
            return ["@staticmethod", head, *_indent([run, *self._save(), f"return {result}"])]
        everything = self.outs[0] if len(self.outs) == 1 else _tuple(self.outs)
        unpack = [f"{_tuple(self.params)} = _inputs", f"{everything} = _output"]
        return [
            "@staticmethod",
            f"def forward({', '.join(self.params)}):",
            *_indent([run, f"return {everything}"]),
            "",
            "@staticmethod",
            "def setup_context(ctx, _inputs, _output):",
            *_indent([*unpack, *self._save()]),
        ]

    def _arguments(self) -> list[str]:
        """The call's arguments; outputs that the rule uses are asked for."""
        forced = _rules.asked_for(self.op)
        return ["True" if p.name in forced else identifier(p.name) for p in self.op.params]

    def _returned(self, output: Output) -> str:
        value = f"_o_{output.name}"
        if output.want_attr is None or self.functional:
            return value
        return f"({value} if {identifier(output.want_attr)} else None)"

    def _save(self) -> list[str]:
        lines = [f"ctx.save_for_backward({', '.join(self.saved)})"] if self.saved else []
        if self.kept:
            lines.append(f"ctx.kept = {_tuple(list(self.kept.values()))}")
        rough = [f"_o_{o.name}" for o in self.shown if o not in self.smooth] + self.updates
        if rough:
            lines.append(f"ctx.mark_non_differentiable(*[_o for _o in {_tuple(rough)} if _o is not None])")
        if len(self.shown) > 1:
            lines.append("ctx.set_materialize_grads(False)")
        if self.filled:
            lines.append(f"ctx.likes = {_tuple([self._like(o) for o in self.filled])}")
        if any(self._given_up(statement) is not None for statement in self.statements):
            lines.append("ctx.hooked = _hooks(True) is not None")  # somebody else may have what is saved
        return lines

    def _like(self, output: Output) -> str:
        value = f"_o_{output.name}"
        meta = f"({value}.shape, {value}.dtype, {value}.device)"
        return meta if output.want == "always" else f"({meta} if {value} is not None else None)"

    # ---- backward

    def backward(self) -> list[str]:
        arrived = [f"_d_{o.name}" for o in self.shown] + [f"_d_{name}" for name in self.updates]
        head = f"def backward(ctx, {', '.join(arrived)}):"
        if self.op.rule is None:
            return ["@staticmethod", head, *_indent([f"raise {_rules.no_rule(self.op)!r}"])]
        lines = []
        if len(self.wanted) > 1:
            lines.append("_needs = ctx.needs_input_grad")
        lines += self._refuse()
        if self.once and not self.inside:
            lines += ["if _is_recorded():", f"    raise NotImplementedError({self._twice()!r})"]
        lines += self._absent()
        if self.saved:
            lines.append(f"{_tuple(self.saved)} = ctx.saved_tensors")
        if self.kept:
            lines.append(f"{_tuple(list(self.kept))} = ctx.kept")
        named = _rules.has_gradient(self.op)
        if len(self.wanted) > 1 or len(named) > 1:
            lines += [f"_g_{name} = None" for name in named]
        done: set[str] = set()
        for statement in self.statements:
            lines += self._statement(statement, done)
        if self.once and self.inside:
            for name in named:
                lines += [f"if _g_{name} is not None:"]  # None: of an input that is absent
                lines += [f"    _g_{name} = _Once.apply(_g_{name}, {identifier(name)}, {self._twice()!r})"]
        returned = [f"_g_{p.name}" if p.name in named else "None" for p in self.op.params]
        return ["@staticmethod", head, *_indent([*lines, f"return {_tuple(returned)}"])]

    def _needs(self, name: str) -> str:
        index = next(i for i, p in enumerate(self.op.params) if p.name == name)
        return f"_needs[{index}]"

    def _refuse(self) -> list[str]:
        """Inputs that may ask for a gradient and that the rule has none for."""
        lines = []
        for name in _rules.without_gradient(self.op):
            condition = self._needs(name) if len(self.wanted) > 1 else "True"
            lines += [f"if {condition}:", f"    raise {_rules.no_gradient_for(self.op, name)!r}"]
        return lines

    def _twice(self) -> str:
        names = ", ".join(dict.fromkeys(_rules.called(s, self.fast).name for s in self.statements))
        return f"{names} has no gradient rule, so gradients of {self.op.name} cannot be differentiated again"

    def _absent(self) -> list[str]:
        """Gradients of outputs that nobody used: all absent means nothing to do, some are 0."""
        if len(self.shown) == 1:
            return []
        nothing = _tuple(["None"] * len(self.op.params))
        names = [f"_d_{o.name}" for o in self.smooth]
        lines = [f"if {' and '.join(f'{n} is None' for n in names)}:", f"    return {nothing}"]
        for i, output in enumerate(self.filled):
            zeros = f"_d_{output.name} = _zeros(*ctx.likes[{i}])"
            lines += [f"if _d_{output.name} is None and ctx.likes[{i}] is not None:", f"    {zeros}"]
        return lines

    def _condition(self, statement: Statement) -> str:
        """When a statement's results are wanted; "" for always."""
        if len(self.wanted) < 2:
            return ""
        return " or ".join(self._needs(name) for name in _rules.serves(self.op, statement)) or "False"

    def _passed(self, statement: Statement) -> dict[str, tuple[str, str]]:
        """Results that are the gradient of an output itself, with the variable that it is and the condition that its
        shape is the input's."""
        passed = {}
        for result, (d, like) in _rules.passed_on(self.op, statement, self.fast).items():
            if like is None:
                passed[result] = self._source(d), ""
            elif len(self.wanted) > 1:
                passed[result] = self._source(d), f"{self._source(like)}.shape == {self._source(d)}.shape"
        return passed

    def _with_passed(
        self, statement: Statement, passed: Mapping[str, tuple[str, str]], twins: Mapping[str, str]
    ) -> list[str]:
        """A statement that need not compute all of its results."""
        called, several = _rules.called(statement, self.fast), len(self.wanted) > 1
        lines, wants, computed = [], {}, []
        for output, result in zip(called.outputs, statement.results, strict=False):
            needed = self._needs(result) if several else ""
            given, condition = passed.get(result, ("", ""))
            if given:
                tests = " and ".join(t for t in (needed, condition) if t)
                lines += [f"if {tests}:", f"    _g_{result} = {given}"] if tests else [f"_g_{result} = {given}"]
            wants[output.want_attr] = needed if not given else "False"
            if result in twins:
                wants[output.want_attr] = f"({needed} and not {self._needs(twins[result])})"
            if condition:
                wants[output.want_attr] = f"({needed} and _g_{result} is None)"
            if not given or condition:
                computed.append(result)
        if not computed:
            return lines
        values = {s.param: self._source(s) for s in statement.sources} | wants
        arguments = ", ".join(values.get(p.name, _default(p)) for p in called.params)
        targets = ", ".join(f"_r_{r}" for r in statement.results)
        lines += [f"if {' or '.join(w for w in wants.values() if w != 'False')}:"]
        lines += [f"    {targets} = _{called.name}({arguments})"]
        lines += [f"    _g_{r} = _r_{r} if _g_{r} is None else _g_{r}" for r in computed]
        for result, twin in twins.items():
            lines += [f"if {self._needs(result)} and _g_{result} is None:", f"    _g_{result} = _g_{twin}"]
        return lines

    def _statement(self, statement: Statement, done: set[str]) -> list[str]:
        called = _rules.called(statement, self.fast)
        passed, twins = self._passed(statement), _rules.twins(self.op, statement, self.fast)
        if passed or twins:
            return self._with_passed(statement, passed, {r: t for r, t in twins.items() if not {r, t} & passed.keys()})
        given = {s.param: self._source(s) for s in statement.sources}
        for output, result in zip(called.outputs, statement.results, strict=False):
            if output.want_attr is None:
                continue
            simple = statement.local or len(self.wanted) < 2
            given[output.want_attr] = "True" if simple else self._needs(result)
        arguments = [given.get(p.name, _default(p)) for p in called.params]
        targets = [f"_l_{r}" if statement.local else f"_g_{r}" for r in statement.results]
        targets += ["_"] * (len(called.outputs) - len(targets))
        function = f"_{called.name}"
        given_up = self._given_up(statement)
        if given_up is not None:
            self.taken.add((statement, given_up))
            function = f"({function} if ctx.hooked or _keeps_graph() else _over_{given_up}_{called.name})"
        lines = [f"{', '.join(targets)} = {function}({', '.join(arguments)})"]
        again = [t for t in targets if t in done and t != "_"]
        if again:  # a second statement for the same input adds to the first
            lines = [f"_r_{t} = {t}" for t in again] + lines
            lines += [f"{t} = {t} if _r_{t} is None else _r_{t} + {t}" for t in again]
        done.update(targets)
        condition = self._condition(statement)
        return [f"if {condition}:", *_indent(lines)] if condition else lines

    def _given_up(self, statement: Statement) -> int | None:
        """The parameter of the called operator whose memory its first output may take over, if there is one.

        An output `?grad` that users do not see is there for this call alone: nobody reads it afterwards, unless the
        graph is kept for another backward pass. A gradient of the same type and shape needs no memory of its own then.
        """
        called = _rules.called(statement, self.fast)
        hidden = {o.name for o in self.op.outputs if o.want == "grad" and o not in self.shown}
        if self.inside or statement.local:
            return None
        for source in statement.sources:
            index = [p.name for p in called.params].index(source.param)
            param = called.params[index]
            if source.kind != "output" or source.name not in hidden or not isinstance(param, Input):
                continue
            if not param.list and (param.type, param.shape) == (called.outputs[0].type, called.outputs[0].shape):
                return index
        return None

    def _source(self, source: Source) -> str:
        prefix = {"output": "_o_", "doutput": "_d_", "local": "_l_", "dim": "_dim_", "pack": "_pack_"}.get(source.kind)
        if source.kind == "literal":
            return repr(source.value)
        return identifier(source.name) if prefix is None else f"{prefix}{source.name}"


class _Once(Function):
    """A gradient that cannot be differentiated again: whoever tries is told."""

    generate_vmap_rule = True

    @staticmethod
    def forward(g: torch.Tensor, like: torch.Tensor, message: str) -> torch.Tensor:
        return g.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Sequence[Any], output: torch.Tensor) -> None:
        ctx.message = inputs[2]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        raise NotImplementedError(ctx.message)


def no_forward_mode(op: Operator) -> str:
    return f"{op.name}: there is no forward mode (jvp, jacfwd, hessian); vjp and jacrev go backwards"


def _default(param: Input | Attr) -> str:
    return repr(param.default) if isinstance(param, Attr) else "None"


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]


def _zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)


def _write(writer: _Writer) -> str:
    """The source of the operator's Function."""
    raises = f"    raise NotImplementedError({no_forward_mode(writer.op)!r})"
    refusal = ["@staticmethod", "def jvp(ctx, *tangents):", raises]
    body = [*writer.forward(), "", *writer.backward(), "", *refusal]
    if writer.functional:
        body = ["generate_vmap_rule = True", "", *body]
    return "\n".join([f"class {writer.op.name}(Function):", *_indent(body), ""])


def make_function(
    op: Operator,
    fast: bool,
    shown: Sequence[int],
    functional: bool,
    inside: bool,
    run: Callable[..., Any],
    full: Callable[[Statement, int], Callable[..., Any]],
    size: Callable[..., Any],
) -> Any:
    """The operator's Function.

    `functional`: in the form that transforms of torch.func want; `inside`: for a call inside of one; `fast`: formulas
    of its rule are compiled so; `run`: its forward, with all outputs; `full(statement, over)`: a function that runs
    what a statement of the rule calls, where the first output may take the memory of parameter `over` (-1: of none).
    """
    writer = _Writer(op, fast, shown, functional, inside)
    source = _write(writer)
    # A transform that has sent a call on to its kernel has its own levels done.
    base = _SingleLevelFunction if inside and not functional else Function
    names: dict[str, Any] = {"Function": base, "_run": run, "_zeros": _zeros, "_size": size}
    names |= {"_is_recorded": torch.is_grad_enabled, "_Once": _Once}
    names["_hooks"] = torch._C._autograd._top_saved_tensors_default_hooks
    names["_keeps_graph"] = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)
    for statement in _rules.statements_of(op):
        names[f"_{statement.op}"] = full(statement, -1)
    for statement, over in writer.taken:
        names[f"_over_{over}_{statement.op}"] = full(statement, over)
    made = compile_source(source, f"gradient of {op.name}", names)[op.name]
    if not functional:
        # torch would look for `backward` and `vjp` at every call, and then call this.
        made._backward_cls.apply = made.backward
    return made
