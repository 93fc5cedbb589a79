"""What a name that does not exist was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

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
)


def near(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that `name` is most like; None where it is like none of them."""
    known = [n for n in names if n != name]
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
