"""What a name that does not exist was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenon.contract import Operator

# Frameworks call the same things differently. A name of one of these groups leads to the others.
_SAME = (
    ("x", "a", "x1", "input", "inputs", "features", "logits", "input_tensor"),
    ("y", "x2", "other"),
    ("axis", "axes", "dim", "dims"),
    ("keepdims", "keepdim"),
    ("eps", "epsilon"),
    ("mask", "where"),
    ("gamma", "weight", "scale"),
    ("beta", "bias"),
    ("p", "rate"),
    ("slope", "negative_slope", "alpha"),
    ("low", "min", "a_min"),
    ("high", "max", "a_max"),
    ("running_mean", "moving_mean"),
    ("running_var", "moving_variance", "moving_var"),
    ("abs", "absolute"),
    ("bce_with_logits", "binary_cross_entropy_with_logits", "sigmoid_cross_entropy_with_logits"),
    ("clamp", "clip"),
    ("div", "divide", "true_divide"),
    ("exp", "exponential"),
    ("hard_sigmoid", "hardsigmoid"),
    ("hard_swish", "hardswish", "hard_silu"),
    ("huber", "huber_loss"),
    ("identity", "clone"),
    ("l1", "l1_loss"),
    ("log_sigmoid", "logsigmoid"),
    ("mse", "mse_loss", "squared_error"),
    ("matmul", "mm", "bmm", "dense"),
    ("matvec", "mv"),
    ("mul", "multiply"),
    ("outer_product", "outer"),
    ("pow", "power"),
    ("silu", "swish"),
    ("softsign", "soft_sign"),
    ("sub", "subtract"),
    ("sum", "reduce_sum"),
    ("top_k", "topk"),
)


def near(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that `name` is most like; None where it is like none of them."""
    known = [n for n in names if n != name]
    inside = [n for n in known if n.endswith(f".{name}")]
    if inside:
        return inside[0]
    for group in _SAME:
        if name in group:
            for other in group:
                if other in known:
                    return other
    found = get_close_matches(name, known, 1, 0.7)
    return found[0] if found else None


def hint(name: str, names: Iterable[str]) -> str:
    """The end of a message about a name that does not exist: "; did you mean 'softmax'?", or nothing."""
    found = near(name, names)
    return "" if found is None else f"; did you mean '{found}'?"


def instead(op: Operator, value: object, function: str) -> str:
    """What to do with a value that stands where an array belongs. A number may be meant for the one attribute that
    takes numbers, dropout(x, 0.1); `function` makes an array of other things."""
    numbers = [a.name for a in op.attrs if a.kind in ("float", "int") and not a.implied]
    if isinstance(value, float) and len(numbers) == 1:
        return f"{numbers[0]}={value} by keyword is the attribute"
    return f"{function}(…) makes one"


def missing(module: str, name: str, names: Iterable[str], peers: Sequence[Any] = ()) -> AttributeError:
    """For a name that a module does not have. Names of modules inside of it are written with a dot. `peers` are modules
    of the framework, whose things work beside ours."""
    found, text = near(name, names), f"module '{module}' has no attribute '{name}'"
    is_same = found is not None and (found.endswith(f".{name}") or any(name in g and found in g for g in _SAME))
    theirs = [peer.__name__ for peer in peers if callable(getattr(peer, name, None))]
    if theirs and not is_same:
        return AttributeError(f"{text}: Tenon does not have it, and {theirs[0]}.{name} works beside Tenon")
    return AttributeError(text + hint(name, names))
