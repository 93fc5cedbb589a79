"""Gradients: one function for all ops walks over the operator's rule. It is registered for the name of the op, and so
holds in eager mode, in graphs, and in graphs that were saved and loaded again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import tensorflow as tf

from tenon import _rules
from tenon.contract import Argument, Input, Operator, fused, table
from tenon.tensorflow._call import (
    FUSE,
    Row,
    is_text,
    op_name,
    parameter,
    read_formula_attributes,
    read_text,
    row_of,
    run,
)
from tenon.tensorflow._types import DTYPES, NAMES

_registered: set[str] = set()


def register() -> None:
    """Registers the gradients of ops that are new."""
    names = {op_name(op.name): op for op in table().values()}
    for name, op in {FUSE: None, **names}.items():
        if name not in _registered:
            _registered.add(name)
            tf.RegisterGradient(name)(_gradient_of(op))


def _gradient_of(op: Operator | None) -> Any:
    def gradient(node: Any, *grads: Any) -> list[Any]:
        if op is not None:
            return _Node(row_of(op), node).gradient(grads)
        formula, fast = node.get_attr("formula").decode(), bool(node.get_attr("fast"))
        return _Node(row_of(fused(formula, fast), fast), node).gradient(grads)

    return gradient


# ---- sizes -----------------------------------------------------------------------------------------------------------


class _Maybe:
    """How sizes that are not known compare: as a condition it holds, because the kernel checks it again."""

    def __bool__(self) -> NoReturn:
        raise NotImplementedError("this gradient depends on a size that is not known when the graph is made")


class _Size:
    """A size that is not known when a graph is made."""

    def __init__(self, tensor: tf.Tensor, dim: int) -> None:
        self.tensor = tensor
        self.dim = dim

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        return tf.shape(self.tensor, out_type=dtype or tf.int64)[self.dim]

    def __eq__(self, other: object) -> Any:
        return self is other or _Maybe()

    __hash__ = object.__hash__

    def _compare(self, other: object) -> _Maybe:
        return _Maybe()

    __lt__ = __le__ = __gt__ = __ge__ = _compare

    def _refuse(self, *others: Any) -> NoReturn:
        bool(_Maybe())
        raise AssertionError

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = __neg__ = _refuse
    __ne__ = _refuse


def _require(condition: Any, message: str) -> None:
    if not isinstance(condition, _Maybe) and not condition:
        raise ValueError(message)


def _shape(tensor: tf.Tensor) -> tuple[Any, ...]:
    """The sizes; one that is not known is like no other."""
    if tensor.shape.rank is None:
        return (object(),)
    return tuple(object() if n is None else n for n in tensor.shape)


class _Unranked:
    """The shape of a tensor whose rank is not known when a graph is made; `what` names it ("sum: x")."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __len__(self) -> NoReturn:
        known = "is not known when the graph is made; tf.ensure_shape(…, [None, …]) tells it"
        raise NotImplementedError(f"{self.what} has a rank that the gradient needs, and that {known}")


def _operand(what: str, tensor: tf.Tensor) -> tuple[str, Any]:
    if tensor.shape.rank is None:
        return NAMES[tensor.dtype], _Unranked(what)
    return NAMES[tensor.dtype], tuple(_Size(tensor, i) if n is None else n for i, n in enumerate(tensor.shape))


# ---- one op of a graph, or a call of one -----------------------------------------------------------------------------


def _zeros(kind: str, shape: Sequence[Any]) -> tf.Tensor:
    return tf.zeros([tf.convert_to_tensor(n, tf.int64) for n in shape], DTYPES[kind])


class _Node:
    """What an op was called with."""

    def __init__(self, row: Row, node: Any) -> None:
        self.row = row
        self.node = node
        self.counts = self._counts()
        self.attrs = self._attrs()
        tensors = iter(node.inputs)
        self.inputs = {
            p.name: [next(tensors) for _ in range(n)] for p, n in zip(row.op.inputs, self.counts, strict=True)
        }
        self.more = list(tensors)  # values of attributes
        told = [a for a in row.ints if not row.is_formula and node.get_attr(f"num_{a.name}_tensor")]
        for attr, value in zip(told, self.more, strict=True):
            self.attrs[attr.name] = tf.unstack(value) if attr.kind == "ints" else value

    def _counts(self) -> list[int]:
        if self.row.is_formula:
            return list(self.node.get_attr("counts"))
        many = [p.list or p.optional for p in self.row.op.inputs]
        names = [p.name for p in self.row.op.inputs]
        return [int(self.node.get_attr(f"num_{n}")) if m else 1 for n, m in zip(names, many, strict=True)]

    def _attrs(self) -> dict[str, Any]:
        op, node = self.row.op, self.node
        if self.row.is_formula:
            return self.row.complete(read_formula_attributes(op, node.get_attr("attributes").decode()))
        made: dict[str, Any] = {o.want_attr: bool(node.get_attr(f"num_{o.name}")) for o in op.outputs if o.want_attr}
        for attr in op.attrs:
            if attr.implied:
                continue
            value = node.get_attr(parameter(attr.name))
            if isinstance(value, bytes):
                value = value.decode()
            if is_text(attr):
                made[attr.name] = read_text(attr, value)
            else:
                made[attr.name] = NAMES[value] if attr.kind == "dtype" else value
        return made

    def _by_name(self) -> dict[str, Any]:
        given = ((p, self.inputs[p.name]) for p in self.row.op.inputs)
        return {p.name: v if p.list else v[0] if v else None for p, v in given}

    def _outputs(self, values: Sequence[Any]) -> dict[str, Any]:
        """By name, from all that the op has; None: not asked for."""
        rest = iter(values)
        return {
            o.name: next(rest) if o.want_attr is None or self.attrs[o.want_attr] else None for o in self.row.op.outputs
        }

    def _saved(self) -> dict[str, Any]:
        """The outputs, with those that the rule reads: a call that did not ask for them is made again."""
        op = self.row.op
        missing = [name for name in _rules.asked_for(op) if not self.attrs[name]]
        if missing:
            again = run(self.row, self._by_name() | self.attrs | dict.fromkeys(missing, True))[0]
            made = {o.name: value for o, value in zip(op.outputs, again, strict=True)}
        else:
            made = self._outputs(self.node.outputs)
        constant = {n: tf.stop_gradient(value) for n, value in made.items() if _rules.is_accounted_for(op, n)}
        return made | constant

    def _is_smooth(self, param: Input) -> bool:
        """Whether a gradient of the input may be of use."""
        tensors = self.inputs[param.name]
        return bool(tensors) and tensors[0].dtype.is_floating and not param.inplace

    def _wanted(self) -> list[str]:
        """Inputs that gradients are needed of; in graphs TensorFlow does not say."""
        skipped = set(getattr(self.node, "skip_input_indices", None) or ())
        wanted, at = [], 0
        for param, count in zip(self.row.op.inputs, self.counts, strict=True):
            if self._is_smooth(param) and not skipped.issuperset(range(at, at + count)):
                wanted.append(param.name)
            at += count
        return wanted

    def _operands(self) -> list[Argument]:
        named = ((p, f"{self.row.op.name}: {p.name}", self.inputs[p.name]) for p in self.row.op.inputs)
        return [
            None if not v else [_operand(what, t) for t in v] if p.list else _operand(what, v[0])
            for p, what, v in named
        ]

    def gradient(self, grads: Sequence[Any]) -> list[Any]:
        """A gradient, or None, for each tensor of the inputs."""
        op = self.row.op
        if op.rule is None:
            raise _rules.no_rule(op)
        given = {
            name: d for name, d in self._outputs(grads).items() if name in op.rule.differentiable and d is not None
        }
        wanted = self._wanted()
        known = set(wanted) & set(_rules.has_gradient(op))
        call = _rules.Recorded(op, self._operands(), self.attrs, self._by_name(), self._saved(), self.row.fast)
        backend = _rules.Backend(self._run, _zeros, _shape, _require)
        made = _rules.differentiate(backend, call, known, {n: tf.convert_to_tensor(d) for n, d in given.items()})
        results: list[Any] = []
        for param in op.inputs:
            for tensor in self.inputs[param.name]:
                is_done = param.name in made or param.name not in wanted
                results.append(made.get(param.name) if is_done else self._other(param, tensor))
        return results + [None] * len(self.more)

    def _other(self, param: Input, tensor: tf.Tensor) -> tf.Tensor | None:
        """The gradient where the rule gives none: 0, unless there is one that nobody has written down.

        A graph is differentiated for all that flows into it, whether that is needed or not, so it cannot refuse: there
        it is None, as where nothing connects the two.
        """
        if not param.list and param.name not in _rules.without_gradient(self.row.op):
            return tf.zeros_like(tensor)
        if tf.executing_eagerly():
            raise _rules.no_gradient_for(self.row.op, param.name)
        return None

    def _run(self, op: Operator, given: Mapping[str, Any]) -> Sequence[Any]:
        return run(row_of(op, self.row.fast and op.formula is not None), given)[0]
