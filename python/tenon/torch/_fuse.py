"""Formulas: ``gate = tn.fuse("silu(x) * y"); z = gate(x, y)``.

torch has one operator for all of them, ``tenon::fuse(formula, inputs, attributes, fast) -> Tensor[]``. The text says
what it is, so graphs that hold it can be saved and read again, and its gradient is the same operator with another text.
Attributes travel as text too: ``"eps=1e-05 mode='sum' want_dx=true"``. Formulas that update inputs are its overload
``tenon::fuse.inplace``: torch must know what is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from types import ModuleType
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from tenon._arguments import attribute_value
from tenon._public import make_fuse
from tenon._recent import kept_while_used
from tenon.contract import Attr, Input, Operator, attribute_words, fused, read_attribute
from tenon.torch import _ops
from tenon.torch._fake import fake_kernel
from tenon.torch._inductor import add_decomposition
from tenon.torch._public import make_public
from tenon.torch._types import DTYPES, NAMES, attributes_text, written_attributes
from tenon.torch._vmap import batched, batched_before

Wants = tuple[int | None, ...]  # for each output, which parameter asks for it; None: it is always made


def _wants(op: Operator) -> Wants:
    names = [p.name for p in op.params]
    return tuple(None if o.want_attr is None else names.index(o.want_attr) for o in op.outputs)


def _arrange(outputs: Sequence[Tensor], wants: Wants, args: Sequence[Any]) -> Any:
    """The outputs that a call made, in the contract's places: None where one was not asked for; one stands alone."""
    arranged: list[Tensor | None] = []
    taken = 0
    for want in wants:
        made = want is None or args[want]
        arranged.append(outputs[taken] if made else None)
        taken += 1 if made else 0
    return arranged[0] if len(wants) == 1 else tuple(arranged) if wants else None


def _text_of(op: Operator) -> Callable[[Sequence[Any]], str]:
    """A function that writes the attributes among all arguments of a call as text."""
    written = written_attributes(op)
    attrs = [(i, p) for i, p in enumerate(op.params) if isinstance(p, Attr)]

    def text(args: Sequence[Any]) -> str:
        if not torch.compiler.is_dynamo_compiling():  # it need not look inside of this
            for i, attr in attrs:
                attribute_value(op, attr, args[i], NAMES.get)
        return attributes_text(written, args)

    return text


def _resolved(tensor: Tensor | None) -> Tensor | None:
    """torch applies a sign that is still to be applied by itself, but not for optional tensors of a list."""
    if tensor is None or torch.compiler.is_dynamo_compiling():
        return tensor
    return tensor.resolve_neg()


def _caller(op: Operator, overload: Any, formula: str, fast: bool) -> Callable[..., Any]:
    """A function of all parameters that calls the one operator of torch."""
    inputs = tuple(i for i, p in enumerate(op.params) if isinstance(p, Input))
    text, wants = _text_of(op), _wants(op)

    def call(*args: Any) -> Any:
        outputs = overload(formula, [_resolved(args[i]) for i in inputs], text(args), fast)
        return _arrange(outputs, wants, args)

    return call


def _updater(op: Operator, overload: Any, formula: str, fast: bool) -> Callable[..., Any]:
    """The same for a formula that updates inputs. Memory for outputs is made before, and written like the inputs."""
    inputs = tuple((i, p.inplace) for i, p in enumerate(op.params) if isinstance(p, Input))
    text, wants = _text_of(op), _wants(op)
    room: Any = torch.ops.tenon.fuse.room

    def call(*args: Any) -> Any:
        attributes = text(args)
        outputs = room(formula, [args[i] for i, _ in inputs], attributes, fast) if wants else []
        places = [k for k, (i, inplace) in enumerate(inputs) if inplace and args[i] is not None]
        written = [args[inputs[k][0]] for k in places] + list(outputs)
        places += [len(inputs) + k for k, want in enumerate(wants) if want is None or args[want]]
        overload(formula, written, places, [None if inplace else args[i] for i, inplace in inputs], attributes, fast)
        return _arrange(outputs, wants, args)

    return call


def _read(attr: Attr, text: str) -> Any:
    return DTYPES[text] if attr.kind == "dtype" else read_attribute(attr.kind, text)


class FusedOp(_ops.TorchOp):
    """A formula as torch has it: through one operator for all of them."""

    def __init__(self, formula: str, fast: bool) -> None:
        self.formula = formula
        self.fast = fast
        super().__init__(fused(formula, fast))

    def _overload(self, kind: str) -> Any:
        packet: Any = torch.ops.tenon.fuse
        if self.op.mutates:
            return _updater(self.op, packet.inplace, self.formula, self.fast)
        return _caller(self.op, getattr(packet, kind), self.formula, self.fast)

    @cached_property
    def fake(self) -> Callable[..., Any]:
        return fake_kernel(self.op, self.defaults)

    def _shown(self) -> list[int]:
        return list(range(len(self.op.outputs)))

    def _register(self) -> None:
        """There is nothing to register: torch has the one operator."""

    def arguments(self, inputs: Sequence[Tensor | None], attributes: str) -> list[Any]:
        """All parameters of a call, by position."""
        values = dict(zip((p.name for p in self.op.inputs), inputs, strict=False))
        attrs = {a.name: a for a in self.op.attrs}
        for name, text in attribute_words(attributes):
            if name not in attrs:
                raise TypeError(f"{self.op.name}: there is no attribute '{name}'")
            values[name] = _read(attrs[name], text)
        return [values.get(p.name, d) for p, d in zip(self.op.params, self.defaults, strict=True)]

    def as_list(self, outputs: Any) -> list[Tensor]:
        """What the operator of torch returns: the outputs that are there."""
        return [o for o in (outputs if isinstance(outputs, tuple) else (outputs,)) if o is not None]


@kept_while_used
def _fused_op(formula: str, fast: bool) -> FusedOp:
    return FusedOp(formula, fast)


def fused_op(formula: str, fast: bool = False) -> FusedOp:
    """The formula as an operator of torch."""
    return _fused_op(formula, fast)


# Where a line end is none of a statement: behind an operator, and in a signature, before what follows the parameters.
_UNFINISHED = re.compile(r"([-+*/%<>=&|^~!,:]|\b(and|or|not|if|else))$")
_CONTINUES = re.compile(r"->|:|where\b(?! *\()")


def _on_one_line(formula: str) -> str:
    """The same formula without line ends and comments. Inductor writes what a call is given into comments of the code
    that it makes for a GPU, as it stands."""
    if "\n" not in formula and "\r" not in formula and "#" not in formula:
        return formula.strip()
    made, depth = "", 0
    for line in formula.replace("\r", " ").split("\n"):
        code = re.sub(r"('[^']*')|#.*", r"\1", line).strip()
        if not code:
            continue
        goes_on = not made or depth > 0 or _UNFINISHED.search(made) or _CONTINUES.match(code)
        made += (" " if goes_on else "; ") + code
        depth += sum(c in "([" for c in code) - sum(c in ")]" for c in code)
    return made.strip()


def _make_formula(formula: str, fast: bool) -> Callable[..., Any]:
    made = fused_op(formula, fast)
    lists = [p.name for p in made.op.inputs if p.list]
    if lists:
        raise NotImplementedError(f"{made.op.name}: {lists[0]} is a list of tensors; tn.fuse takes single ones")
    return make_public(made)


_UPDATES = "A formula that updates inputs writes to the tensors that it is given, and returns what outputs it has."
_fuse = make_fuse("tenon.torch", _make_formula, _UPDATES, as_kept=_on_one_line)


# A function that torch.compile looks into may make its formulas itself. Their texts are constants there, and what they
# make is found by name: dynamo has to know where a function comes from.
_made_inside: Any = ModuleType("tenon.torch formulas")


def _make_inside(formula: str, fast: bool) -> str:
    """Makes the function of a formula while dynamo traces; its name in _made_inside."""
    function = _fuse(formula, fast)
    names = {made: str(name) for name, made in vars(_made_inside).items() if callable(made)}
    name: str = names.get(function, f"formula_{len(names)}")
    setattr(_made_inside, name, function)
    return name


# What torch.compiler.assume_constant_result does; that imports dynamo, which takes seconds.
_make_inside._dynamo_marked_constant = True  # type: ignore[attr-defined]


def fuse(formula: str, fast: bool = False) -> Callable[..., Any]:
    if torch.compiler.is_dynamo_compiling():
        made: Callable[..., Any] = getattr(_made_inside, _make_inside(formula, fast))
        return made
    return _fuse(formula, fast)


fuse.__module__, fuse.__doc__ = "tenon.torch", _fuse.__doc__


# ---- the one operator of torch ---------------------------------------------------------------------------------------


def _fake(formula: str, inputs: Sequence[Tensor | None], attributes: str = "", fast: bool = False) -> list[Tensor]:
    made = fused_op(formula, fast)
    return made.as_list(made.fake(*made.arguments(inputs, attributes)))


def _decomposed(formula: str, inputs: Sequence[Tensor | None], attributes: str = "", fast: bool = False) -> Any:
    from tenon.torch._decompose import decompose

    made = fused_op(formula, fast)
    outputs = decompose(made.op, made.arguments(inputs, attributes), attributes)
    return NotImplemented if outputs is None else [o for o in outputs if o is not None]


def _autograd(formula: str, inputs: Sequence[Tensor | None], attributes: str = "", fast: bool = False) -> list[Tensor]:
    made = fused_op(formula, fast)
    if made.op.mutates or len(inputs) != len(made.op.inputs):
        torch.ops.tenon.fuse.raw(formula, inputs, attributes, fast)  # says what is wrong
    args = made.promote(made.arguments(inputs, attributes))
    needs = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
    if needs or forward_ad._current_level >= 0:
        return made.as_list(made.record(args))
    return made.as_list(made.forward(*args))


# ---- the one for formulas that update inputs ---------------------------------------------------------------------


def _room(formula: str, inputs: Sequence[Tensor | None], attributes: str, fast: bool) -> list[Tensor]:
    """Memory for the outputs of a formula that updates inputs; an operator, so that dynamo need not look inside."""
    made = fused_op(formula, fast)
    return made.as_list(made.fake(*made.arguments(inputs, attributes)))


def _all_inputs(written: Sequence[Tensor], places: Sequence[int], inputs: Sequence[Tensor | None]) -> list[Any]:
    """The inputs of a call, those that it writes among them."""
    given = dict(zip(places, written, strict=False))  # the kernel says what is wrong
    return [given.get(i, tensor) for i, tensor in enumerate(inputs)]


def _inplace_fake(
    formula: str,
    written: Sequence[Tensor],
    places: Sequence[int],
    inputs: Sequence[Tensor | None],
    attributes: str = "",
    fast: bool = False,
) -> None:
    _room(formula, _all_inputs(written, places, inputs), attributes, fast)  # checks the call


def _inplace_autograd(
    formula: str,
    written: Sequence[Tensor],
    places: Sequence[int],
    inputs: Sequence[Tensor | None],
    attributes: str = "",
    fast: bool = False,
) -> None:
    if torch.is_grad_enabled():
        made = fused_op(formula, fast)
        made.refuse(made.arguments(_all_inputs(written, places, inputs), attributes))
    packet: Any = torch.ops.tenon.fuse
    with _ops._C._AutoDispatchBelowAutograd():
        packet.inplace(formula, written, places, inputs, attributes, fast)


def _inplace_noted(keyset: Any, formula: str, written: Sequence[Tensor], *given: Any) -> None:
    packet: Any = torch.ops.tenon.fuse
    with _ops._C._AutoDispatchBelowADInplaceOrView():
        packet.inplace.redispatch(keyset & _ops._C._after_ADInplaceOrView_keyset, formula, written, *given)
    torch.autograd.graph.increment_version(written)


# ---- registration ----------------------------------------------------------------------------------------------------


@cache
def register() -> None:
    """What torch is told about the operator, once, when it is there."""
    packet: Any = torch.ops.tenon.fuse
    for name, overload in (("tenon::fuse", packet.default), ("tenon::fuse.raw", packet.raw)):
        _ops._torch_library.register_fake(name, _fake, lib=_ops._library)
        _ops._torch_library.register_vmap(name, batched(overload), lib=_ops._library)
        _ops._library.impl(name.partition("::")[2], batched_before(overload), "Batched")
        add_decomposition(overload, _decomposed)
    _ops._library.impl("fuse", _autograd, "Autograd")
    _ops._library.define("fuse.room(str formula, Tensor?[] inputs, str attributes, bool fast) -> Tensor[]")
    _ops._library.impl("fuse.room", _room, "CompositeImplicitAutograd")
    _ops._torch_library.register_fake("tenon::fuse.inplace", _inplace_fake, lib=_ops._library)
    _ops._torch_library.register_vmap("tenon::fuse.inplace", batched(packet.inplace), lib=_ops._library)
    _ops._library.impl("fuse.inplace", _inplace_autograd, "Autograd")
    _ops._library.impl("fuse.inplace", _inplace_noted, "ADInplaceOrView", with_keyset=True)
