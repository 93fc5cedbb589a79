"""torch.onnx.export of models that hold Tenon's operators, for ONNX Runtime with ``tenon.onnxruntime.register``:

``torch.onnx.export(model, args, "model.onnx", custom_translation_table=tenon.torch.onnx.translations())``
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnx import TensorProto
from onnx.defs import OpSchema
from onnxscript import values

from tenon.contract import NUMPY_NAMES, Attr, Operator, table
from tenon.infer import Types
from tenon.torch._fuse import fused_op
from tenon.torch._ops import torch_op
from tenon.torch._types import NAMES

_KINDS = {
    "int": OpSchema.AttrType.INT,
    "axis": OpSchema.AttrType.INT,
    "bool": OpSchema.AttrType.INT,
    "float": OpSchema.AttrType.FLOAT,
    "axes": OpSchema.AttrType.INTS,
    "ints": OpSchema.AttrType.INTS,
}
_TYPES = [f"tensor({name})" for name in ("float16", "bfloat16", "float", "double", "int8", "int16", "int32", "int64")]
_TYPES += [f"tensor({name})" for name in ("uint8", "uint16", "uint32", "uint64", "bool")]
_FLOATS = {"FLOAT16": "f16", "BFLOAT16": "bf16", "FLOAT": "f32", "DOUBLE": "f64"}  # by ONNX's names
# Tenon's names of types by ONNX's numbers of them.
_BY_NAME = {name.replace("_", "").upper(): kind for kind, name in NUMPY_NAMES.items()} | _FLOATS
_NUMBERED = {number: _BY_NAME[name] for name, number in TensorProto.DataType.items() if name in _BY_NAME}
_OPSET = values.Opset("tenon", 1)


def _node(op_type: str, inputs: Sequence[Any], n_out: int, attrs: dict[str, tuple[Any, Any]]) -> list[Any]:
    """The outputs of a new node; `attrs` are types and values by name."""
    option = OpSchema.FormalParameterOption.Optional
    names = [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(n_out)]
    ins, outs = ([OpSchema.FormalParameter(n, f"T{n}", param_option=option) for n in side] for side in names)
    kinds = [OpSchema.Attribute(name, kind, required=False) for name, (kind, _) in attrs.items()]
    constraints = [(f"T{n}", _TYPES, "") for side in names for n in side]
    schema = OpSchema(op_type, "tenon", 1, inputs=ins, outputs=outs, attributes=kinds, type_constraints=constraints)
    made = values.Op(_OPSET, op_type, schema)(*inputs, **{name: value for name, (_, value) in attrs.items()})
    return [made] if n_out == 1 else list(made)


def _count(op: Operator, args: Sequence[Any]) -> int:
    """How many outputs a call has; those that it does not ask for must be the last ones."""
    asked = dict(zip((p.name for p in op.params), args, strict=True))
    wanted = [o.want_attr is None or bool(asked[o.want_attr]) for o in op.outputs]
    if not all(wanted[: sum(wanted)]):
        raise NotImplementedError(f"{op.name}: ONNX cannot have this call, which leaves out an output in between")
    return sum(wanted)


def _attribute(attr: Attr, value: Any) -> tuple[Any, Any]:
    if attr.kind == "dtype":
        value = (
            NAMES[value] if isinstance(value, torch.dtype) else _NUMBERED[int(value)]
        )  # which the exporter makes of it
    return _KINDS.get(attr.kind, OpSchema.AttrType.STRING), int(value) if attr.kind == "bool" else value


def _translation(name: str) -> Callable[..., Any]:
    made, op = torch_op(name), table()[name]

    def translate(*given: Any, **named: Any) -> Any:
        args = made.complete(given, named)
        pairs = [(p, a) for p, a in zip(op.params, args, strict=True) if not isinstance(p, Attr)]
        lists = [a or () for p, a in pairs if p.list]
        inputs = [a for p, a in pairs if not p.list] + [a for values_ in lists for a in values_]
        attrs = {
            p.name: _attribute(p, a)
            for p, a in zip(op.params, args, strict=True)
            if isinstance(p, Attr) and not p.implied and a is not None
        }
        if len(lists) > 1:
            attrs["lengths"] = OpSchema.AttrType.INTS, [len(a) for a in lists]
        outputs = _node(name, inputs, _count(op, args), attrs)  # the exporter takes no None for those that are not made
        return outputs[0] if len(op.outputs) == 1 else outputs

    return translate


def _refuse_types(op: Operator, inputs: Sequence[Any], args: Sequence[Any]) -> None:
    """Raises where a formula's tensors are not all of one floating type: the node Fuse takes and makes no others."""
    given = [(p, _kind(value)) for p, value in zip(op.inputs, inputs, strict=False) if value is not None]

    def refuse_unless(fits: bool, name: str, kind: str) -> None:
        if not fits:
            one = "but the inputs and outputs of a node Fuse are all of one floating type"
            raise NotImplementedError(f"{op.name}: ONNX cannot have this formula: {name} is {kind}, {one}")

    for param, kind in given:
        refuse_unless(kind in _FLOATS.values() and kind == given[0][1], param.name, kind)
    asked = dict(zip((p.name for p in op.params), args, strict=True))
    types = Types(op, {a.name: NAMES[asked[a.name]] for a in op.attrs if a.kind == "dtype" and asked[a.name]})
    types.bind([(param, [(kind, ())]) for param, kind in given])
    for output in op.outputs:
        if output.want_attr is None or asked[output.want_attr]:
            kind = types.of(output.type)
            refuse_unless(kind == given[0][1], output.name, kind)


def _kind(value: Any) -> str:
    """Tenon's name of a floating type, ONNX's of any other."""
    name = str(value.dtype.name)
    return _FLOATS.get(name, name.lower())


def _translate_fuse(formula: Any, inputs: Any, attributes: Any = "", fast: Any = False) -> Any:
    made = fused_op(formula, fast)
    args = made.arguments(inputs, attributes)
    _refuse_types(made.op, inputs, args)
    string = OpSchema.AttrType.STRING
    attrs = {
        "formula": (string, formula),
        "attributes": (string, attributes),
        "fast": (OpSchema.AttrType.INT, int(fast)),
    }
    if any(value is None for value in inputs):
        attrs["lengths"] = OpSchema.AttrType.INTS, [int(value is not None) for value in inputs]
    return _node("Fuse", [value for value in inputs if value is not None], _count(made.op, args), attrs)


def translations() -> dict[Any, Callable[..., Any]]:
    """What torch.onnx.export needs to know of Tenon's operators, as its `custom_translation_table`.

    Operators that update their inputs are not in it: ONNX has no such thing.
    """
    names = [name for name, op in table().items() if not op.mutates]
    found = {name: _translation(name) for name in names} | {"fuse": _translate_fuse}
    packets = ((getattr(torch.ops.tenon, name), function) for name, function in found.items())
    return {overload: function for packet, function in packets for overload in (packet.default, packet.raw)}
