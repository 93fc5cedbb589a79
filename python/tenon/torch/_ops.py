"""One torch operator for each row of the table: fake kernel, gradient, autocast, and the function that users call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function

from tenon import _lib
from tenon._arguments import (
    alike_inputs,
    attribute_value,
    free_inputs,
    is_broadcast,
    is_number,
    listed,
    wrong_attribute,
)
from tenon._public import drop_absent, shown_outputs
from tenon.contract import Attr, Input, Operator, Statement, table
from tenon.torch._direct import available, direct, record_by
from tenon.torch._fake import bind, fake_kernel
from tenon.torch._grad import make_function, no_forward_mode
from tenon.torch._inductor import add_decomposition
from tenon.torch._param import Param, plain
from tenon.torch._types import DTYPES, NAMES
from tenon.torch._vmap import batched, batched_before

_C: Any = torch._C
_torch_library: Any = torch.library
_library = _torch_library.Library("tenon", "FRAGMENT")  # its registrations go when it goes
# Function.apply without what only transforms need.
_plain_apply: Any = vars(_C._FunctionBase)["apply"]
_AUTOCAST_KEYS = {"AutocastCPU": "cpu", "AutocastCUDA": "cuda"}


def default_of(param: Input | Attr) -> Any:
    """The default of a parameter in torch's terms; None where there is none."""
    if isinstance(param, Input):
        return None
    return DTYPES[param.default] if param.kind == "dtype" and param.default else param.default


def _wants_functions() -> bool:
    """Whether the innermost transform of torch.func has to see a Function; functionalize has no rule for them."""
    if not _C._are_functorch_transforms_active():
        return False
    functorch = _C._functorch
    return bool(functorch.peek_interpreter_stack().key() != functorch.TransformType.Functionalize)


def filled(value: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor without dimensions of a number; a copy from the host would wait.

    torch.compile makes a symbol of a number that changes, and still a graph for each of its values, unless all that is
    done with it is simple arithmetic with a tensor. That is what is done: -0.0 + value is value, of 0 and -0 as well.
    """
    if torch.compiler.is_dynamo_compiling() and dtype.is_floating_point:
        made: Tensor = torch.full((), -0.0, dtype=dtype, device=device) + value
        return made
    return torch.full((), value, dtype=dtype, device=device)


def _beside(value: Any, tensors: Sequence[Tensor]) -> Any:
    """A plain number, or a 0-dim tensor of the CPU, as a tensor where the others are. It counts for no type."""
    device = next((t.device for t in tensors if t.ndim > 0), tensors[0].device)
    if isinstance(value, Tensor):
        return value.to(device) if value.ndim == 0 and value.device.type == "cpu" else value
    kinds = {t.dtype for t in tensors}
    dtype = tensors[0].dtype if len(kinds) == 1 and tensors[0].dtype.is_floating_point else torch.float64
    return filled(value, dtype, device)


def is_plain_number(value: Any) -> bool:
    """A number that may stand for a tensor which broadcasts; True is 1, as in torch."""
    return isinstance(value, int | float | torch.SymInt | torch.SymFloat | torch.SymBool)


def same_type(*given: Any) -> Sequence[Any]:
    """Inputs of one type by the contract in the type that torch computes with, if that is a floating one.

    Tensors without dimensions count only where the others say little; plain numbers become such tensors.
    """
    tensors = [t for t in given if isinstance(t, Tensor)]
    if not tensors:
        if all(map(is_plain_number, given)):
            raise TypeError(f"{', '.join(map(str, given))}: these are numbers, and one of them has to be a tensor")
        return given
    if len(tensors) < len(given) or any(t.device != tensors[0].device for t in tensors):
        given = tuple(_beside(v, tensors) if isinstance(v, Tensor) or is_plain_number(v) else v for v in given)
        tensors = [t for t in given if isinstance(t, Tensor)]
    if all(t.dtype == tensors[0].dtype for t in tensors):
        return given
    if any(t.dtype.is_floating_point and t.dtype.itemsize == 1 for t in tensors):  # torch does not promote these
        return given
    dtype = reduce(torch.promote_types, [t.dtype for t in tensors if t.ndim > 0] or [t.dtype for t in tensors])
    if not dtype.is_floating_point:
        dtype = reduce(torch.promote_types, [t.dtype for t in tensors])
    return [t.to(dtype) if isinstance(t, Tensor) else t for t in given] if dtype.is_floating_point else given


class TorchOp:
    """An operator as torch has it."""

    fast = False  # formulas that its gradient calls are compiled so

    def __init__(self, op: Operator) -> None:
        self.op = op
        self.defaults = tuple(default_of(p) for p in op.params)
        self.inputs = [(i, p) for i, p in enumerate(op.params) if isinstance(p, Input)]
        self.tensors = [i for i, _ in self.inputs]
        self.free = free_inputs(op)
        self.alike = alike_inputs(op)
        self.broadcast = [i for i, p in self.inputs if is_broadcast(p) and any(i in places for places in self.alike)]
        self.numbers = [i for i, p in self.inputs if is_number(p)]
        self.everything = list(range(len(op.outputs)))
        self.shown = self._shown()
        self.overload: Any = self._overload("default")  # with a gradient
        self.call = direct(op.address, self._recorded(self.shown), self.general_shown, self.shown, False)
        self._functional: Any = None
        self._register()

    def _overload(self, kind: str) -> Any:
        return getattr(getattr(torch.ops.tenon, self.op.name), kind)

    # What not every call needs is made when it is first asked for: much of a formula's first use is this.

    @cached_property
    def names(self) -> list[str]:
        return [p.name for p in self.op.params]

    @cached_property
    def written(self) -> list[int]:
        return [i for i, p in self.inputs if p.inplace]

    @cached_property
    def raw(self) -> Any:
        """The overload without a gradient: what it comes to below autograd."""
        return self._overload("raw")

    @cached_property
    def call_into(self) -> Callable[..., Any]:
        """`call` with one argument more, a tensor for the result: what is returned may be that, or another one."""
        return self.call if available else lambda *args: self.call(*args[:-1])

    @cached_property
    def apply_full(self) -> Callable[..., Any]:
        """All outputs, recorded for the backward pass."""
        return self._recorded(self.everything)

    @cached_property
    def full(self) -> Callable[..., Any]:
        """All outputs, recorded where that is needed."""
        return direct(self.op.address, self.apply_full, self.general, self.everything, True)

    @cached_property
    def forward(self) -> Callable[..., Any]:
        """All outputs, never recorded."""
        return direct(self.op.address, self.raw, self.raw, self.everything, True)

    def _shown(self) -> list[int]:
        return shown_outputs(self.op)

    # ---- ways to call it

    def complete(self, given: Sequence[Any], named: dict[str, Any]) -> Sequence[Any]:
        """All arguments by position: torch leaves those out that equal their default."""
        if not named and len(given) == len(self.defaults):
            return given
        args = [*given, *self.defaults[len(given) :]]
        for name, value in named.items():
            args[self.names.index(name)] = value
        return args

    def general(self, *args: Any) -> Any:
        """All outputs, through the dispatcher."""
        strange = [value for value in args if not isinstance(value, Tensor) and hasattr(value, "__torch_function__")]
        if strange and all(type(value) is not Param for value in strange):  # such as what torch.fx traces with
            return torch.overrides.handle_torch_function(self.overload, strange, *args)
        settled = self._settle(args)
        if settled is not args:
            return self.full(*settled)
        if _wants_functions() and not (self.op.mutates and self.op.rule is None):
            return self._transformed(*args)
        try:
            return self.overload(*args)
        except (RuntimeError, TypeError) as error:
            if "Expected a value of type" not in str(error):
                raise
            refused = error
        self._check_arguments(args)  # says it in the operator's terms
        raise refused

    def _check_arguments(self, args: Sequence[Any]) -> None:
        for param, value in zip(self.op.params, args, strict=True):
            if isinstance(param, Attr):
                if (value is None and param.required) or (isinstance(value, Tensor) and value.ndim > 0):
                    raise wrong_attribute(self.op, param, value)
                attribute_value(self.op, param, value, NAMES.get)
            elif param.list:
                for k, one in enumerate(listed(self.op, param, value, "tensors")):
                    if not isinstance(one, Tensor):
                        what = f"{param.name}[{k}] must be a tensor, not {type(one).__name__}"
                        raise TypeError(f"{self.op.name}: {what}")

    def _settle(self, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments as torch's operator takes them; the same object where they are so already."""
        if any(isinstance(value, Param) for value in args):
            args = [plain(value) for value in args]
        for i, param in self.inputs:
            value = args[i]
            if isinstance(value, Tensor) or param.list or (value is None and param.optional):
                continue
            if i in self.broadcast and is_plain_number(value):  # `promote` makes a tensor of it
                continue
            what = "None" if value is None else f"{type(value).__name__}; torch.tensor(…) makes one"
            raise TypeError(f"{self.op.name}: {param.name} must be a tensor, not {what}")
        if self.broadcast and not any(isinstance(args[i], Tensor) for i in self.tensors):
            names = " and ".join(self.names[i] for i in self.broadcast if args[i] is not None)
            raise TypeError(f"{self.op.name}: {names} are numbers; one of them has to be a tensor")
        for number, value in zip(self.op.params, args, strict=True):
            if isinstance(number, Attr) and isinstance(value, Tensor) and value.requires_grad:
                message = "is a number, and its gradient would be lost; a formula takes it as a tensor: tn.fuse(…)"
                raise TypeError(f"{self.op.name}: {number.name} {message}")
        return self.promote(self._gathered(args))

    def _gathered(self, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments with 0-dim inputs that are on the CPU where the others are; the same object where they are."""
        others = [args[i] for i in self.tensors if i not in self.numbers and isinstance(args[i], Tensor)]
        if not self.numbers or not others:
            return args
        given = {i: args[i] for i in self.numbers if isinstance(args[i], Tensor)}
        moved = {i: _beside(t, others) for i, t in given.items() if t.device.type == "cpu" != others[0].device.type}
        return [moved.get(i, value) for i, value in enumerate(args)] if moved else args

    def promote(self, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments with inputs of one type in one type; the same object where they are so already."""
        for places in self.alike:
            given = [args[i] for i in places]
            same = dict(zip(places, same_type(*given), strict=True))
            if any(same[i] is not args[i] for i in places):
                args = [same.get(i, value) for i, value in enumerate(args)]
        return args

    def select(self, outputs: Any) -> Any:
        """The outputs that users see, of all."""
        if len(self.op.outputs) < 2:
            return outputs if self.op.outputs else None
        if len(self.shown) == 1:
            return outputs[self.shown[0]]
        return drop_absent(tuple(outputs[i] for i in self.shown))

    def general_shown(self, *args: Any) -> Any:
        return self.select(self.general(*args))

    def _transformed(self, *args: Any) -> Any:
        """Inside of torch.func's transforms, which want a Function of their own form."""
        if self._functional is None:
            run = self._updated if self.written else self.raw
            self._functional = self._function(self.everything, run, functional=True, inside=True)
        try:
            made = self._functional.apply(*args)
        except AssertionError as error:  # torch's own, where vmap is outside of forward mode
            raise NotImplementedError(no_forward_mode(self.op)) from error
        if not self.written:
            return made
        for i, update in zip(self.written, made[len(self.op.outputs) :], strict=True):
            if update is not None:
                args[i].copy_(update)
        outputs = made[: len(self.op.outputs)]
        return outputs[0] if len(outputs) == 1 else outputs

    def _updated(self, *args: Any) -> Any:
        """All outputs, and behind them what the inputs that are updated become; they stay as they are."""
        copies = {i: None if args[i] is None else args[i].clone() for i in self.written}
        outputs = self.raw(*(copies.get(i, value) for i, value in enumerate(args)))
        return (*(outputs if isinstance(outputs, tuple) else (outputs,)), *copies.values())

    def _recorded(self, shown: Sequence[int]) -> Callable[..., Any]:
        """A function that records the call for the backward pass; its Function is written when it is first needed."""
        apply: Any = None
        asked = shown is not self.everything and any(self.op.outputs[i].want == "asked" for i in shown)
        suspects = self._suspects()

        def recorded(*args: Any) -> Any:
            nonlocal apply
            for i in suspects:
                if args[i] is not None and (not isinstance(args[i], Tensor) or args[i].requires_grad):
                    self.refuse(args)
            if not self.op.outputs:  # nothing that could be recorded
                return self.forward(*args)
            if apply is None:
                made: Any = self._function(shown, self.forward)
                apply = _plain_apply.__get__(None, made)
                if not suspects and not asked:  # nothing more is done here
                    record_by(self.full if shown is self.everything else self.call, apply)
            return drop_absent(apply(*args)) if asked else apply(*args)

        return recorded

    def _suspects(self) -> list[int]:
        """The inputs that `refuse` may have something against."""
        lost = self.op.mutates and self.op.rule is None
        return [i for i, p in self.inputs if p.inplace or p.list or lost]

    def refuse(self, args: Sequence[Any]) -> None:
        """Raises where something asks for a gradient that there is not."""
        lost = self.op.mutates and self.op.rule is None  # updates that nothing could be differentiated through
        for param, value in zip(self.op.params, args, strict=True):
            if not isinstance(param, Input) or value is None:
                continue
            if not any(t.requires_grad for t in (value if param.list else [value])):
                continue
            if param.inplace or lost:
                written = "is updated in place, so it cannot require a gradient"
                message = written if param.inplace else "requires a gradient, which an update in place does not give"
                raise RuntimeError(f"{self.op.name}: {param.name} {message}; torch.no_grad() allows it")
            if param.list:
                raise NotImplementedError(f"{self.op.name}: there is no gradient for {param.name}, a list of tensors")

    def _function(
        self, shown: Sequence[int], run: Callable[..., Any], functional: bool = False, inside: bool = False
    ) -> Any:
        return make_function(self.op, self.fast, shown, functional, inside, run, self._full, self._size)

    def _rule_op(self, statement: Statement) -> TorchOp:
        """The operator that a statement of the gradient rule calls."""
        if statement.formula is None:
            return _ops[statement.op]
        from tenon.torch._fuse import fused_op

        return fused_op(statement.formula, self.fast)

    def _full(self, statement: Statement, over: int) -> Callable[..., Any]:
        """All outputs of the called operator; the first may take the memory of parameter `over`."""
        made = self._rule_op(statement)
        if over < 0:
            return made.full
        return direct(made.op.address, made.apply_full, made.general, made.everything, True, over)

    def _size(self, kind: str, name: str, args: Sequence[Any]) -> Any:
        """A dimension or a pack of the call."""
        attrs = {n: a for n, a, p in zip(self.names, args, self.op.params, strict=True) if isinstance(p, Attr)}
        scope = bind(self.op, [args[i] for i in self.tensors], attrs).scope
        return scope.dim(name) if kind == "dim" else scope.pack(name)

    # ---- kernels

    def _register(self) -> None:
        name = self.op.name
        fake = fake_kernel(self.op, self.defaults)
        for qualified, overload in ((f"tenon::{name}", self.overload), (f"tenon::{name}.raw", self.raw)):
            _torch_library.register_fake(qualified, fake, lib=_library)
            _torch_library.register_vmap(qualified, batched(overload), lib=_library)
            _library.impl(qualified.partition("::")[2], batched_before(overload), "Batched")
        _library.impl(name, self._autograd, "Autograd")
        if self.written:
            _library.impl(name, self._note_writes(self.overload), "ADInplaceOrView", with_keyset=True)
            _library.impl(f"{name}.raw", self._note_writes(self.raw), "ADInplaceOrView", with_keyset=True)
        if self.op.formula is not None and not self.written and not any(p.list for p in self.op.inputs):
            for overload in (self.overload, self.raw):
                add_decomposition(overload, self._decomposed)
        if self.op.autocast in ("16", "32"):  # what is "widest" is promoted with and without autocast
            for key, device in _AUTOCAST_KEYS.items():
                _library.impl(name, self._autocast(key, device), key)

    def _needs_grad(self, args: Sequence[Any]) -> bool:
        for i in self.tensors:
            value = args[i]
            if isinstance(value, Tensor):
                if value.requires_grad:
                    return True
            elif value is not None and any(t.requires_grad for t in value):
                return True
        return False

    def _autograd(self, *given: Any, **named: Any) -> Any:
        args = self.promote(self.complete(given, named))
        if (torch.is_grad_enabled() and self._needs_grad(args)) or forward_ad._current_level >= 0:
            return self.record(args)
        return self.forward(*args)

    def record(self, args: Sequence[Any]) -> Any:
        """All outputs, recorded, in the kernel for autograd: a transform of torch.func may have sent the call there."""
        if not _C._are_functorch_transforms_active():
            return self.apply_full(*args)
        self.refuse(args)
        with enable_single_level_autograd_function():
            return self._apply_inside(*args) if self.op.outputs else self.forward(*args)

    @cached_property
    def _apply_inside(self) -> Callable[..., Any]:
        apply: Callable[..., Any] = _plain_apply.__get__(
            None, self._function(self.everything, self.forward, inside=True)
        )
        return apply

    def _decomposed(self, *given: Any, **named: Any) -> Any:
        from tenon.torch._decompose import decompose_row

        return decompose_row(self.op, self.complete(given, named))

    def _note_writes(self, overload: Any) -> Callable[..., Any]:
        """In-place operators say what they wrote, so that torch can tell when a saved tensor was changed."""

        def kernel(keyset: Any, *given: Any, **named: Any) -> Any:
            args = self.complete(given, named)
            with _C._AutoDispatchBelowADInplaceOrView():
                outputs = overload.redispatch(keyset & _C._after_ADInplaceOrView_keyset, *args)
            for i in self.written:
                if args[i] is not None:
                    torch.autograd.graph.increment_version(args[i])
            return outputs

        return kernel

    # ---- autocast

    def _autocast(self, key: str, device: str) -> Callable[..., Any]:
        keys = _C.DispatchKeySet(getattr(_C.DispatchKey, key))

        def kernel(*given: Any, **named: Any) -> Any:
            args = list(self.complete(given, named))
            dtype = torch.float32 if self.op.autocast == "32" else torch.get_autocast_dtype(device)
            for i, _ in self.free:  # fixed types stay
                if args[i] is not None:
                    args[i] = _cast(args[i], dtype)
            with _C._ExcludeDispatchKeyGuard(keys):
                return self.overload(*args)

        return kernel


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Like torch's autocast: floating point but for f64."""
    if not tensor.is_floating_point() or tensor.dtype in (dtype, torch.float64):
        return tensor
    return tensor.to(dtype)


_ops: dict[str, TorchOp] = {}


def torch_op(name: str) -> TorchOp:
    """The operator of this name, registered."""
    return _ops[name]


def register_all() -> list[TorchOp]:
    """Registers what is not registered yet; returns the new ones."""
    status = _lib.lib.tn_torch_register()
    if status != 0:
        raise ImportError(f"{_lib.last_error()} (this is torch {torch.__version__})")
    fresh = [op for name, op in table().items() if name not in _ops]
    for op in fresh:
        _ops[op.name] = TorchOp(op)
    return [_ops[op.name] for op in fresh]
