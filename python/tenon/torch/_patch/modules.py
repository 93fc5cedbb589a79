"""Recipes for modules without children: normalisations, activations, softmax, embeddings, dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import tenon.torch as tn
from tenon.torch._patch.linear import remade
from tenon.torch._patch.probe import Maker, probe
from tenon.torch._patch.recipe import Recipe, Settings
from tenon.torch.nn._rows import held
from tenon.torch.nn.layers import normalize_batch

_EPS = (1e-5, 1e-6, 1e-8, 1e-12)  # tried where a module has none as an attribute


def _named(module: nn.Module, ndim: Callable[[int], bool]) -> list[str]:
    """The module's own floating parameters of such a rank, those that are called weight first."""
    if module._modules:
        return []
    named = [n for n, p in module._parameters.items() if p is not None and p.is_floating_point() and ndim(p.ndim)]
    return sorted(named, key=lambda name: "weight" not in name)


def _only(module: nn.Module, count: Sequence[int]) -> list[str] | None:
    """Its parameters, where they are that many and all have the same shape of at least one dimension."""
    names = _named(module, lambda n: n >= 1)
    every = [p for p in module._parameters.values() if p is not None]
    shapes = {tuple(p.shape) for p in every}
    return names if len(names) == len(every) and len(names) in count and len(shapes) <= 1 else None


def _numbers(module: nn.Module, kind: type) -> list[str]:
    """Attributes that are a number."""
    return [name for name, value in module.__dict__.items() if type(value) is kind]


def _eps(module: nn.Module) -> list[str | float]:
    """Where its eps may be: an attribute, which is looked up in each call, or a number that its code has."""
    small = [n for n in _numbers(module, float) if 0 < getattr(module, n) < 0.1]
    return [*small, *_EPS]


def _number(module: nn.Module, eps: str | float | None) -> Any:
    return getattr(module, eps) if isinstance(eps, str) else eps


def _scaled_rows(module: nn.Module, make: Maker, shape: Sequence[int]) -> Sequence[Tensor]:
    """Rows from large to so small that eps decides."""
    x = make.normal(4, 3, *shape).detach()
    size = torch.tensor([1.0, 0.1, 1e-2, 1e-3], device=x.device, dtype=x.dtype)
    return [(x * size.view(4, *[1] * (x.ndim - 1))).requires_grad_()]


# ---- normalisations of rows ------------------------------------------------------------------------------------------


def _row_shape(module: nn.Module) -> tuple[int, ...]:
    weight = next((p for p in module._parameters.values() if p is not None), None)
    if weight is not None:
        return tuple(weight.shape)
    shape = getattr(module, "normalized_shape", 8)
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _rows(module: nn.Module, make: Maker) -> Sequence[Tensor]:
    return _scaled_rows(module, make, _row_shape(module))


def _find_rms_norm(module: nn.Module) -> Iterator[Settings]:
    names = _only(module, (0, 1))
    if names is None or (not names and not _numbers(module, float) and not hasattr(module, "normalized_shape")):
        return
    eps = [None] if getattr(module, "eps", 0) is None else _eps(module)
    for each in eps:
        for zero_centered in (False, True) if names else (False,):
            yield names[0] if names else None, each, zero_centered


def _rms_norm(weight: str | None, eps: str | float | None, zero_centered: bool) -> Callable[..., Tensor]:
    def call(module: nn.Module, x: Tensor) -> Tensor:
        w = None if weight is None else held(module, weight)
        shape, small = None if w is None else w.shape, _number(module, eps)
        return remade(lambda x, w: tn.rms_norm(x, shape, w, small, zero_centered=zero_centered), x.contiguous(), w)

    return call


def _find_layer_norm(module: nn.Module) -> Iterator[Settings]:
    names = _only(module, (0, 1, 2))
    if names is None or (not names and not hasattr(module, "normalized_shape")):
        return
    for eps in _eps(module):
        yield (names[0] if names else None, names[1] if len(names) > 1 else None, eps)


def _layer_norm(weight: str | None, bias: str | None, eps: str | float) -> Callable[..., Tensor]:
    def call(module: nn.Module, x: Tensor) -> Tensor:
        w = None if weight is None else held(module, weight)
        b = None if bias is None else held(module, bias)
        shape: Any = module.normalized_shape if w is None else w.shape
        small = _number(module, eps)
        return remade(lambda x, w, b: tn.layer_norm(x, shape, w, b, small), x.contiguous(), w, b)

    return call


def _find_channel_norm(module: nn.Module) -> Iterator[Settings]:
    return (s for s in _find_layer_norm(module) if s[0] is not None and len(_row_shape(module)) == 1)


def _channel_norm(weight: str, bias: str | None, eps: str | float) -> Callable[..., Tensor]:
    rows = _layer_norm(weight, bias, eps)

    def call(module: nn.Module, x: Tensor) -> Tensor:
        return rows(module, x.movedim(1, -1)).movedim(-1, 1)

    return call


def _images(module: nn.Module, make: Maker) -> Sequence[Tensor]:
    return _scaled_rows_of(make, _row_shape(module)[0], 3, 2)


def _scaled_rows_of(make: Maker, channels: int, *rest: int) -> Sequence[Tensor]:
    x = make.normal(4, channels, *rest).detach()
    size = torch.tensor([1.0, 0.1, 1e-2, 1e-3], device=x.device, dtype=x.dtype)
    return [(x * size.view(4, *[1] * (x.ndim - 1))).requires_grad_()]


# ---- normalisations of channels --------------------------------------------------------------------------------------


def _find_group_norm(module: nn.Module) -> Iterator[Settings]:
    names = _only(module, (0, 1, 2))
    if names is None or (not names and not hasattr(module, "num_channels")):
        return
    c = _channels(module)
    for groups in [n for n in _numbers(module, int) if 0 < getattr(module, n) < c and c % getattr(module, n) == 0]:
        for eps in _eps(module):
            yield (names[0] if names else None, names[1] if len(names) > 1 else None, groups, eps)


def _channels(module: nn.Module) -> int:
    count = getattr(module, "num_channels", getattr(module, "num_features", None))
    return count if isinstance(count, int) else _row_shape(module)[0]


def _group_norm(weight: str | None, bias: str | None, groups: str, eps: str | float) -> Callable[..., Tensor]:
    def call(module: nn.Module, x: Tensor) -> Tensor:
        w = None if weight is None else held(module, weight)
        b = None if bias is None else held(module, bias)
        return tn.group_norm(x, getattr(module, groups), w, b, _number(module, eps))

    return call


def _channel_images(module: nn.Module, make: Maker) -> Sequence[Tensor]:
    return _scaled_rows_of(make, _channels(module), 3, 2)


def _find_instance_norm(module: nn.Module) -> Iterator[Settings]:
    if _tracks(module) or not hasattr(module, "num_features") or not hasattr(module, "momentum"):
        return
    names = _only(module, (0, 2))
    if names is not None:
        yield (*(names or (None, None)), "eps")


def _instance_norm(weight: str | None, bias: str | None, eps: str) -> Callable[..., Tensor]:
    def call(module: nn.Module, x: Tensor) -> Tensor:
        w = None if weight is None else held(module, weight)
        b = None if bias is None else held(module, bias)
        module._check_input_dim(x)  # type: ignore[operator]
        batch = x.ndim == module._get_no_batch_dim() + 1  # type: ignore[operator]
        y = tn.instance_norm(x if batch else x[None], None, None, w, b, True, 0.0, _number(module, eps))
        return y if batch else y[0]

    return call


def _tracks(module: nn.Module) -> bool:
    return module._buffers.get("running_mean") is not None and module._buffers.get("running_var") is not None


def _find_batch_norm(module: nn.Module) -> Iterator[Settings]:
    if _tracks(module) and hasattr(module, "momentum") and not isinstance(module, nn.SyncBatchNorm):
        yield ()


def _batch_norm() -> Callable[..., Tensor]:
    return normalize_batch


def _find_frozen_norm(module: nn.Module) -> Iterator[Settings]:
    if _tracks(module) and not hasattr(module, "momentum"):
        yield from ((eps,) for eps in _eps(module))


def _frozen_norm(eps: str | float) -> Callable[..., Tensor]:
    def call(module: nn.Module, x: Tensor) -> Tensor:
        mean, var, weight, bias = (held(module, n) for n in ("running_mean", "running_var", "weight", "bias"))
        return tn.batch_norm(x, mean, var, weight, bias, eps=_number(module, eps))

    return call


def _batch(module: nn.Module, make: Maker) -> Sequence[Tensor]:
    """As many dimensions as the module's own check of them asks for."""
    buffer = module._buffers.get("running_mean")
    c = _channels(module) if buffer is None else buffer.shape[0]
    check = getattr(module, "_check_input_dim", None)
    for rest in ((3, 2), (5,), (2, 3, 2)):
        x = make.normal(4, c, *rest)
        try:
            if check is not None:
                check(x)
        except ValueError:
            continue
        break
    return [x]


# ---- of each element -------------------------------------------------------------------------------------------------

# Functions of the table, with how many numbers torch's have: those are attributes of a module.
_ACTIVATIONS: dict[str, int] = {
    **dict.fromkeys(("relu", "silu", "gelu", "gelu_tanh", "quick_gelu", "tanh", "sigmoid", "mish", "hard_swish"), 0),
    **dict.fromkeys(("hard_sigmoid", "log_sigmoid", "softsign", "selu", "square"), 0),
    **dict.fromkeys(("leaky_relu", "elu", "celu"), 1),
    "softplus": 2,
}


def _find_activation(module: nn.Module) -> Iterator[Settings]:
    if any(t is not None for t in (*module._parameters.values(), *module._buffers.values())) or module._modules:
        return
    numbers = [*_numbers(module, float), *_numbers(module, int)]
    for name, count in _ACTIVATIONS.items():
        if count == 0:
            yield name, ()
        elif count == 1:
            yield from ((name, (number,)) for number in numbers)
        else:
            yield from ((name, (a, b)) for a in numbers for b in numbers if a != b)


def _activation(name: str, numbers: tuple[str, ...]) -> Callable[..., Tensor]:
    function: Callable[..., Tensor] = getattr(tn, name)
    if not numbers:
        return lambda module, x: function(x)
    return lambda module, x: function(x, *(getattr(module, n) for n in numbers))


def _elements(module: nn.Module, make: Maker) -> Sequence[Tensor]:
    return [make.normal(4, 5, 8, scale=3.0)]


def _find_softmax(module: nn.Module) -> Iterator[Settings]:
    if not module._parameters and not module._buffers and not module._modules:
        yield from ((row, dim) for dim in _numbers(module, int) for row in ("softmax", "log_softmax"))


def _softmax(row: str, dim: str) -> Callable[..., Tensor]:
    function: Callable[..., Tensor] = getattr(tn, row)
    return lambda module, x: function(x.contiguous(), getattr(module, dim))


def _find_dropout(module: nn.Module) -> Iterator[Settings]:
    if type(module).forward is nn.Dropout.forward and not getattr(module, "inplace", False):
        yield ()


def _dropout() -> Callable[..., Tensor]:
    return lambda module, x: tn.dropout(x, module.p, module.training)


def _without_p(module: nn.Module, make: Maker, training: bool) -> nn.Module:
    """Masks are random: what is compared is what happens without one."""
    made = probe(module, make, training)
    made.p = 0.0  # type: ignore[assignment]
    return made


# ---- looking up ------------------------------------------------------------------------------------------------------


def _find_embedding(module: nn.Module) -> Iterator[Settings]:
    names = _named(module, lambda n: n == 2)
    others = [p for n, p in module._parameters.items() if p is not None and n not in names]
    if len(names) != 1 or others or not hasattr(module, "num_embeddings"):
        return
    if getattr(module, "max_norm", None) is None:  # it writes to the weight
        scales = [n for n, b in module._buffers.items() if b is not None and b.ndim == 0 and b.is_floating_point()]
        yield from ((names[0], scale) for scale in (None, *scales))


def _embedding(weight: str, scale: str | None) -> Callable[..., Tensor]:
    def call(module: nn.Module, index: Tensor) -> Tensor:
        w = held(module, weight)
        assert w is not None
        y = tn.embedding(index, w, module.padding_idx)  # type: ignore[arg-type]
        factor = None if scale is None else held(module, scale)
        return y if factor is None else y * factor.to(w.dtype)

    return call


def _indices(module: nn.Module, make: Maker) -> Sequence[Tensor]:
    index = make.integers(int(module.num_embeddings), 3, 8)  # type: ignore[arg-type]
    index[1] = index[0]  # some occur twice
    padding = getattr(module, "padding_idx", None)
    if padding is not None:
        index[2, :2] = padding
    return [index]


def _narrow(module: nn.Module, make: Maker, training: bool) -> nn.Module:
    """Of a large table the rows that are there, but only a few columns."""
    name = _named(module, lambda n: n == 2)[0]
    weight = held(module, name)
    assert weight is not None
    return probe(module, make, training, {name: (weight.shape[0], min(8, weight.shape[1]))})


# The first that computes what a module does is taken.
RECIPES: Iterable[Recipe] = (
    Recipe("embedding", _find_embedding, _embedding, _indices, _narrow),
    Recipe("rms_norm", _find_rms_norm, _rms_norm, _rows),
    Recipe("layer_norm", _find_layer_norm, _layer_norm, _rows),
    Recipe("layer_norm of channels", _find_channel_norm, _channel_norm, _images),
    Recipe("group_norm", _find_group_norm, _group_norm, _channel_images),
    Recipe("batch_norm", _find_batch_norm, _batch_norm, _batch),
    Recipe("batch_norm_infer", _find_frozen_norm, _frozen_norm, _batch),
    Recipe("instance_norm", _find_instance_norm, _instance_norm, _batch),
    Recipe("softmax", _find_softmax, _softmax, _elements),
    Recipe("activation", _find_activation, _activation, _elements),
)
DROPOUT: Recipe = Recipe("dropout", _find_dropout, _dropout, _elements, _without_p)
