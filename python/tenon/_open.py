"""Finds libtenon.so and opens it."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator

_NAME = "libtenon.so"
_INSTALLED = f"{_NAME}.0"  # beside this file; there, libtenon.so is a text for linkers


def _hint() -> str:
    """What to do, the end of a message."""
    if os.environ.get("TENON_LIBRARY"):
        return "TENON_LIBRARY names it: unset TENON_LIBRARY"
    from tenon._origin import reinstall  # which nobody needs where all is well

    return f"What brings it again: {reinstall()}"


def _places() -> Iterator[str]:
    """Where the library may be: where the user says, installed with the package, built in the checkout."""
    said = os.environ.get("TENON_LIBRARY")
    if said:
        yield said
        return
    package = os.path.dirname(os.path.realpath(__file__))
    yield os.path.join(package, _INSTALLED)
    yield os.path.join(os.path.dirname(os.path.dirname(package)), "build", _NAME)


def _check_whole(place: str) -> None:
    """A file that is cut off would end the process with a bus error: the table at its end must be there."""
    with open(place, "rb") as file:
        begin = file.read(64)
        bytes_there = os.fstat(file.fileno()).st_size
    if len(begin) < 64 or begin[:5] != b"\x7fELF\x02":
        raise ImportError(f"{place} is no library: it has {bytes_there} bytes and does not begin like one. {_hint()}")
    (table,) = struct.unpack_from("<Q", begin, 0x28)
    entry_bytes, entries = struct.unpack_from("<HH", begin, 0x3A)
    if table + entry_bytes * entries > bytes_there:
        wanted = table + entry_bytes * entries
        raise ImportError(f"{place} is cut off: it has {bytes_there} of {wanted} bytes. {_hint()}")


def _open() -> ctypes.CDLL:
    for place in _places():
        if os.path.isfile(place):
            _check_whole(place)
            # Operators from shared objects (tenon.load) find the library's functions in the process.
            try:
                return ctypes.CDLL(os.path.realpath(place), mode=ctypes.RTLD_GLOBAL)
            except OSError as error:  # not for this machine, or its libc is too old
                raise ImportError(f"{_NAME} cannot be loaded: {error}. {_hint()}") from None
    raise ImportError(f"there is no {_NAME}: no {' and no '.join(_places())}. {_hint()}")


def another_version(why: object) -> ImportError:
    """What to raise where the library and this package do not belong together."""
    return ImportError(f"{lib._name} is not the library of this package: {why}. {_hint()}")


lib = _open()
