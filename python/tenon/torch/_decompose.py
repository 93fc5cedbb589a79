"""Formulas as operations of torch, which Inductor can fuse with what stands before and behind them.

The graph is what the C library makes of the formula for the types, ranks and attributes of a call
(tn_fuse_graph_json). Its values have all dimensions that the formula goes over, of size 1 where they do not have one.
Where an attribute divides a dimension of a tensor into groups, the formula goes over two in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental import proxy_tensor

from tenon import _lib
from tenon.contract import Json, Operand, Operator, dense_strides
from tenon.torch._fake import bind_call, is_unknown, output_strides
from tenon.torch._types import DTYPES, attributes_text, operand, written_attributes

Values = list[Tensor]
_broadcast_shapes: Callable[..., torch.Size] = torch.broadcast_shapes


def _softplus(x: Tensor) -> Tensor:
    return torch.relu(x) + torch.log1p(torch.exp(-torch.abs(x)))


def _sign(x: Tensor) -> Tensor:
    return torch.where(x == x, torch.sign(x), x)  # of NaN it is NaN, for torch 0


def _prod(x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    for dim in dims:  # torch takes one at a time
        x = torch.prod(x, dim, keepdim=keepdim)
    return x


_SHAPES = {"sum_to", "expand"}  # of the second argument only the shape counts
_INTEGERS = {"i8", "i16", "i32", "i64", "u8"}
_WIDTH = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1}

# What torch lacks under a name of its own. A node names its function; one that names none stays an operator of Tenon
# (src/fuse/graph/primitive_list.h).
_OWN: dict[str, Callable[..., Tensor]] = {"_softplus": _softplus, "_sign": _sign, "_prod": _prod}


def _function(node: Json) -> Callable[..., Tensor]:
    name: str = node["torch"]
    found: Callable[..., Tensor] = _OWN[name] if name in _OWN else getattr(torch, name)
    return found


# ---- what can be said in operations of torch -------------------------------------------------------------------------


def _loses(kind: str, to: str) -> bool:
    """Whether a conversion rounds: Inductor leaves roundings out, and torch does not say what integer a NaN becomes."""
    return kind in _WIDTH and (to in _INTEGERS or _WIDTH.get(to, 8) < _WIDTH[kind])


def _can_say(node: Json, nodes: Sequence[Json]) -> bool:
    if node["op"] in ("input", "number"):
        return True
    if node["op"] == "index":
        return True
    known = "torch" in node or node["op"] in _SHAPES or node["op"] in ("count", "cast")
    if not known or (node["in"] == "i64" and node["op"] == "**"):  # below 0: torch raises
        return False
    taken = node["args"][:1] if node["op"] in _SHAPES or node["op"] == "count" else node["args"]
    if node["op"] == "where":
        taken = taken[1:]
    kinds = [nodes[k]["type"] for k in taken if nodes[k]["op"] != "number"]
    to = node["to"] if node["op"] == "cast" else node["in"]
    return node["op"] == "count" or not any(_loses(kind, to) for kind in kinds)


def graph_of(op: Operator, types: tuple[str | None, ...], ranks: tuple[int, ...], attributes: str) -> Json | None:
    """The graph of a call; None where it cannot be said in operations of torch."""
    key = ("graph", types, ranks, attributes)
    if key not in op.kept:
        graph = _lib.fuse_graph(op.address, types, ranks, attributes)
        said = graph is not None and all(_can_say(node, graph["nodes"]) for node in graph["nodes"])
        op.kept[key] = graph if said else None
    made: Json | None = op.kept[key]
    return made


# ---- values ----------------------------------------------------------------------------------------------------------


def _sizes(shape: Sequence[int], dims: Sequence[int], known: Sequence[int]) -> list[int]:
    """What a tensor of this shape has of each dimension of the formula."""
    groups = {d: size for d, size in zip(dims, known, strict=True) if size > 0}
    return [
        1 if d < 0 else size if size > 0 else shape[d] // groups[d] if d in groups else shape[d]
        for d, size in zip(dims, known, strict=True)
    ]


def _place(tensor: Tensor, dims: Sequence[int], known: Sequence[int]) -> Tensor:
    """A tensor with all dimensions of the formula."""
    if dims == list(range(tensor.ndim)):
        return tensor
    own = list(dict.fromkeys(d for d in dims if d >= 0))
    order = own + [d for d in range(tensor.ndim) if d not in own]
    return tensor.permute(order).reshape(_sizes(tensor.shape, dims, known))


def _reduced(node: Json, of: Tensor) -> list[int]:
    """The dimensions that a reduction or a count goes over."""
    over = node["over"]
    return over if isinstance(over, list) else list(range(of.ndim))[-1 if over == "row" else 0 :]


def _index(sizes: Sequence[int], along: Sequence[int], device: torch.device) -> Tensor:
    """The position of each element along some dimensions, in the order in which they lie in memory."""
    count = math.prod(sizes[d] for d in along)
    shape = [size if d in along else 1 for d, size in enumerate(sizes)]
    return torch.arange(count, device=device).reshape(shape).expand(list(sizes))


def _position(graph: Json, node: Json, placed: Sequence[Tensor], device: torch.device) -> Tensor:
    """The same of a node without an argument, which says what dimensions it has."""
    sizes = [1] * len(graph["sizes"])
    for tensor in placed:
        sizes = [b if a == 1 else a for a, b in zip(sizes, tensor.shape, strict=True)]
    over = node["over"]
    along = over if isinstance(over, list) else list(range(len(sizes)))[-1 if over == "row" else 0 :]
    has = set(node["dims"])
    return _index([size if d in has else 1 for d, size in enumerate(sizes)], along, device)


def _count(node: Json, of: Tensor) -> int:
    return math.prod(of.shape[d] for d in _reduced(node, of))


def _sum_to(x: Tensor, target: Tensor) -> Tensor:
    dims = [d for d in range(x.ndim) if target.ndim == 0 or target.shape[d] == 1]
    return torch.sum(x, dims, keepdim=True) if dims else x


def _is_of_none(node: Json, of: Tensor) -> bool:
    return node["op"] in ("max", "min") and "over" in node and _count(node, of) == 0


def _extreme_of_none(node: Json, of: Tensor) -> Tensor:
    """The largest or smallest of no elements, which torch does not have: what no element is beyond."""
    dims = _reduced(node, of)
    if of.dtype.is_floating_point:
        least, most = -math.inf, math.inf
    else:
        least, most = torch.iinfo(of.dtype).min, torch.iinfo(of.dtype).max
    shape = [1 if d in dims else size for d, size in enumerate(of.shape)]
    return torch.full(shape, most if node["op"] == "min" else least, dtype=of.dtype, device=of.device)


def _operation(node: Json, args: Values, device: torch.device) -> Tensor:
    op = node["op"]
    if op == "index":
        return _index(args[0].shape, _reduced(node, args[0]), device)
    if op == "count":
        return torch.full((), _count(node, args[0]), dtype=DTYPES[node["type"]], device=device)
    if op == "sum_to":
        return _sum_to(*args)
    if op == "expand":
        return args[0].expand(_broadcast_shapes(*(a.shape for a in args)))
    if _is_of_none(node, args[0]):
        return _extreme_of_none(node, args[0])
    if "over" in node:
        dims = _reduced(node, args[0])
        return _function(node)(args[0], dims, keepdim=True) if dims else args[0]
    if op == "cast":
        return args[0].to(DTYPES[node["to"]]).to(DTYPES[node["type"]])
    return _function(node)(*args)


def _number(node: Json, device: torch.device) -> Tensor:
    value = float("nan") if node["value"] is None else node["value"]
    dtype = DTYPES[node["type"]]
    return torch.full((), value if dtype.is_floating_point else int(value), dtype=dtype, device=device)


def _arguments(node: Json, values: Values) -> Values:
    args = [values[k] for k in node["args"]]
    kept = {"where": 1, "count": 1, "index": 1}.get(node["op"], 0)
    args[kept:] = [a.to(DTYPES[node["in"]]) for a in args[kept:]]
    return args


def _compute(graph: Json, inputs: Sequence[Tensor | None], device: torch.device) -> Values:
    values: Values = []
    placed = [
        None if given is None else _place(given, dims, graph["sizes"])
        for given, dims in zip(inputs, graph["inputs"], strict=True)
    ]
    for node in graph["nodes"]:
        if node["op"] == "input":
            given = placed[node["input"]]
            assert given is not None
            values.append(given.to(DTYPES[node["type"]]))
        elif node["op"] == "index" and not node["args"]:
            values.append(_position(graph, node, [t for t in placed if t is not None], device))
        elif node["op"] == "number":
            values.append(_number(node, device))
        else:
            values.append(_operation(node, _arguments(node, values), device))
    return values


# ---- extremes of no elements -----------------------------------------------------------------------------------------


def _is_unless_infinite(node: Json, nodes: Sequence[Json]) -> bool:
    """where(abs(a) == inf, …, a), by which logsumexp takes nothing of the maximum of no elements."""
    test = nodes[node["args"][0]] if node["op"] == "where" else None
    if test is None or test["op"] != "==":
        return False
    size, infinity = (nodes[k] for k in test["args"])
    return size["op"] == "abs" and size["args"] == node["args"][2:] and infinity.get("value") in (math.inf, -math.inf)


def _depend_on_none(nodes: Sequence[Json], values: Values) -> list[bool]:
    """Which values depend on an extreme of no elements: the operator raises an error where one is asked for."""
    made: list[bool] = []
    for node, value in zip(nodes, values, strict=True):
        args = node.get("args", [])
        taken = [] if _is_unless_infinite(node, nodes) else args[:1] if node["op"] in _SHAPES else args
        none = bool(args) and _is_of_none(node, values[args[0]]) and value.numel() > 0
        made.append(none or any(made[k] for k in taken))
    return made


# ---- outputs ---------------------------------------------------------------------------------------------------------


def _dense(value: Tensor, strides: Sequence[int]) -> Tensor:
    """A tensor of its own with these strides, as the operator makes it."""
    if tuple(strides) == dense_strides(value.shape):
        return value.clone(memory_format=torch.contiguous_format)
    order = sorted(range(value.ndim), key=lambda d: -strides[d])
    back = [order.index(d) for d in range(value.ndim)]
    return value.permute(order).clone(memory_format=torch.contiguous_format).permute(back)


def _store(value: Tensor, dims: Sequence[int], known: Sequence[int], kind: str, shape: Sequence[int]) -> Tensor:
    """The value in an output's type and shape."""
    value = value.to(DTYPES[kind])
    if dims == list(range(len(shape))) and tuple(value.shape) == tuple(shape):
        return value
    value = value.expand(_sizes(shape, dims, known))
    own = sorted((d for d in range(len(dims)) if dims[d] >= 0), key=lambda d: dims[d])
    return value.permute(own + [d for d in range(len(dims)) if dims[d] < 0]).reshape(shape)


def _can_store(graph: Json, specs: Sequence[Operand | None]) -> bool:
    for output, spec in zip(graph["outputs"], specs, strict=True):
        node = graph["nodes"][output["node"]]
        if spec is not None and node["type"] in _WIDTH and spec[0] in _INTEGERS:
            return False
    return True


# ---- the rule --------------------------------------------------------------------------------------------------------


def _comes_from_elementwise(tensor: Tensor) -> bool:
    """Whether the graph that is being traced makes a tensor by an elementwise operation, views of the result aside."""
    mode = proxy_tensor.get_proxy_mode()
    slot = None if mode is None else proxy_tensor.get_proxy_slot(tensor, mode.tracer, None)
    node: Any = None if slot is None else slot.proxy.node
    while node is not None and node.op == "call_function" and getattr(node.target, "is_view", False):
        node = node.args[0]
    return node is not None and torch.Tag.pointwise in getattr(node.target, "tags", ())


def is_worth_it(inputs: Sequence[Tensor | None]) -> bool:
    """Where there is something in front that Inductor can fuse it with: alone, Tenon's own loops are as fast or faster
    (docs/formulas.md has the numbers)."""
    return any(t is not None and _comes_from_elementwise(t) for t in inputs)


# ---- calls -----------------------------------------------------------------------------------------------------------


def decompose(op: Operator, args: Sequence[Any], attributes: str) -> list[Tensor | None] | None:
    """The outputs of a call with all its arguments; None where the operator stays as it is."""
    inputs, specs, device = bind_call(op, args)
    known = [None if t is None else operand(t) for t in inputs]
    types = tuple(k and k[0] for k in known)
    sizes = [size for _, shape in filter(None, known) for size in shape]
    if any(map(is_unknown, sizes)):  # is it 1, is it 0: nobody knows
        return None
    graph = graph_of(op, types, tuple(len(k[1]) if k else 0 for k in known), attributes)
    if graph is None or not _can_store(graph, specs) or not is_worth_it(inputs):
        return None
    values = _compute(graph, inputs, device)
    if any(size == 0 for size in sizes):
        none = _depend_on_none(graph["nodes"], values)
        if any(spec and 0 not in spec[1] and none[o["node"]] for o, spec in zip(graph["outputs"], specs, strict=True)):
            return None
    outputs: list[Tensor | None] = []
    for index, (output, spec) in enumerate(zip(graph["outputs"], specs, strict=True)):
        if spec is None:
            outputs.append(None)
            continue
        made = _store(values[output["node"]], output["dims"], graph["sizes"], *spec)
        outputs.append(_dense(made, output_strides(op, index, spec[1], inputs)))
    return outputs


def decompose_row(op: Operator, args: Sequence[Any]) -> Any:
    """The outputs of a call of a row of the table that is a formula, as its operator returns them."""
    outputs = decompose(op, args, attributes_text(written_attributes(op), args))
    if outputs is None:
        return NotImplemented
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
