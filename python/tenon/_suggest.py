"""What a name that does not exist was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

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
