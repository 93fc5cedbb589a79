"""The short way past torch's dispatcher (adapters/torch/torch_direct.c), where this torch allows it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad

from tenon._lib import lib

# The functions that touch Python objects are called with the interpreter's lock held.
_lib = ctypes.PyDLL(lib._name)
_lib.tn_torch_direct_setup.argtypes = [ctypes.py_object] * 6
_lib.tn_torch_direct_setup.restype = ctypes.c_int
_lib.tn_torch_direct_accept.restype = None
_lib.tn_torch_direct_keys.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_uint64]
_lib.tn_torch_direct_keys.restype = None
_lib.tn_torch_direct_plain.restype = ctypes.c_bool
_lib.tn_torch_direct.argtypes = [
    ctypes.c_void_p,
    ctypes.py_object,
    ctypes.c_uint64,
    ctypes.c_bool,
    ctypes.c_int32,
]
_lib.tn_torch_direct.restype = ctypes.py_object
_lib.tn_torch_direct_changed.argtypes = [ctypes.py_object]
_lib.tn_torch_direct_changed.restype = None
_lib.tn_torch_take.restype = ctypes.py_object


def _knows_modes() -> bool:
    """Direct calls look at parts of torch that it does not promise to keep: what they see is compared with what is."""
    plain: Callable[[], bool] = _lib.tn_torch_direct_plain
    if not plain():  # imported inside of a mode: nothing can be said
        return False
    with torch._C._IncludeDispatchKeyGuard(torch._C.DispatchKey.Python):
        seen = plain()
    with torch._C._AutoDispatchBelowAutograd():
        seen = seen or plain()
    with torch.overrides.BaseTorchFunctionMode():
        seen = seen or plain()
    with forward_ad.dual_level():
        seen = seen or plain()
    return not seen and plain()


def _no_names() -> AbstractContextManager[Any]:
    named = torch._C._parse_dispatch_key("Named")
    if named is None:
        return nullcontext()
    guard: AbstractContextManager[Any] = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(named))
    return guard


def _places(address: int, reach: int, word: int) -> set[int]:
    """Where a word is in memory, counted from an address."""
    return {at for at in range(0, reach, 8) if ctypes.c_uint64.from_address(address + at).value == word}


def _keys() -> tuple[int, int, int]:
    """For tn_torch_direct_keys: found by comparing memory with what torch says of some tensors; 0 where no place, or
    more than one, is right for all of them."""
    plain = torch.ones(2)
    every = [plain, torch._neg_view(plain), torch.ones(3, dtype=torch.complex64).conj(), torch.ones(1).requires_grad_()]
    every += [torch.nn.Parameter(torch.ones(1)), torch.zeros(0, dtype=torch.int64), torch.empty(2, device="meta")]
    said = [torch._C._dispatch_keys(t).raw_repr() for t in every]
    negative = said[0] ^ said[1]
    outer = set.intersection(*(_places(id(t), 64, t._cdata) for t in every))
    inner = set.intersection(*(_places(t._cdata, 192, keys) for t, keys in zip(every, said, strict=True)))
    if len(outer) != 1 or len(inner) != 1 or negative.bit_count() != 1:
        return 0, 0, 0
    return outer.pop(), inner.pop(), negative


def _set_up() -> bool:
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None:
        return False
    tensor, parameter = torch.Tensor, torch.nn.Parameter
    bump = torch._C._increment_version
    status = _lib.tn_torch_direct_setup(tensor, parameter, tensor.is_neg, bump, vars(forward_ad), exchange)
    if status != 0 or not _knows_modes():
        return False
    if hasattr(torch._C, "_dispatch_keys") and hasattr(torch.Tensor, "_cdata"):
        _lib.tn_torch_direct_keys(*_keys())
    with torch.inference_mode():
        _lib.tn_torch_direct_accept()
    with _no_names():
        _lib.tn_torch_direct_accept()  # how backward passes run, while torch has named tensors
    return True


available = _set_up()
# take(source, count, always): see adapters/torch/torch_direct.c and _seeds.py.
take: Callable[..., Any] | None = _lib.tn_torch_take() if available else None


def direct(
    address: int,
    with_grad: Callable[..., Any],
    general: Callable[..., Any],
    shown: Sequence[int],
    absent: bool,
    over: int = -1,
) -> Callable[..., Any]:
    """A function of all parameters of an operator (its address), by position, that returns the outputs `shown`.

    Plain calls are run at once; those that must be recorded go to `with_grad`, all others to `general`. Outputs that
    were not asked for are None in the result if `absent`, else they are left out. In a plain call the first output may
    take the memory of parameter `over`, a tensor that nobody needs afterwards.
    """
    if not available:
        return general
    bits = sum(1 << i for i in shown)
    made: Callable[..., Any] = _lib.tn_torch_direct(address, [with_grad, general], bits, absent, over)
    return made


def record_by(function: Callable[..., Any], with_grad: Callable[..., Any]) -> None:
    """Calls of a function that `direct` made go to `with_grad` from now on, where they must be recorded."""
    if available:
        held: list[Callable[..., Any]] = function.__self__[1]  # type: ignore[attr-defined]
        before, held[0] = held[0], with_grad
        _lib.tn_torch_direct_changed(function)
        del before  # not before nobody goes there any more
