"""Finds libtenon.so and opens it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

_NAME = "libtenon.so"
_INSTALLED = f"{_NAME}.0"  # beside this file; there, libtenon.so is a text for linkers
_HINT = "`make build` makes it, TENON_LIBRARY=<path> names another one"


def _places() -> Iterator[str]:
    """Where the library may be: where the user says, installed with the package, built in the checkout."""
    said = os.environ.get("TENON_LIBRARY")
    if said:
        yield said
        return
    package = os.path.dirname(os.path.realpath(__file__))
    yield os.path.join(package, _INSTALLED)
    yield os.path.join(os.path.dirname(os.path.dirname(package)), "build", _NAME)


def _open() -> ctypes.CDLL:
    for place in _places():
        if os.path.isfile(place):
            # Operators from shared objects (tenon.load) find the library's functions in the process.
            try:
                return ctypes.CDLL(os.path.realpath(place), mode=ctypes.RTLD_GLOBAL)
            except OSError as error:  # not for this machine, or its libc is too old
                raise ImportError(f"{_NAME} cannot be loaded: {error}. {_HINT}") from None
    tried = "\n".join(f"  {place}" for place in _places())
    raise ImportError(f"no {_NAME}: {_HINT}. Tried:\n{tried}")


def another_version(why: object) -> ImportError:
    """What to raise where the library and this package do not belong together."""
    return ImportError(f"{lib._name} is not the library of this package: {why}. {_HINT}")


lib = _open()
