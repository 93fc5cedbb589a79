"""What is made of a text, once for as long as somebody holds it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar
from weakref import WeakValueDictionary

_Made = TypeVar("_Made")

MOST = 64  # that stay though nobody holds them: whoever has the text alone comes again


def kept_while_used(make: Callable[..., _Made]) -> Callable[..., _Made]:
    """The same object for the same arguments while anybody has it, and the last few in any case."""
    alive: WeakValueDictionary[Any, Any] = WeakValueDictionary()

    @lru_cache(maxsize=MOST)
    def recent(*key: Any) -> _Made:
        made: _Made | None = alive.get(key)
        return alive.setdefault(key, make(*key)) if made is None else made

    return wraps(make)(recent)
