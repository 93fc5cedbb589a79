"""The structs that Python declares are those that the library was compiled with."""

from __future__ import annotations

import ctypes
import ctypes.util
from pathlib import Path

import pytest
from imports import run

from tenon import _structs


@pytest.mark.parametrize("name", _structs.STRUCTS)
def test_a_struct_that_differs_is_named(name: str) -> None:
    struct = _structs.STRUCTS[name]
    fields = list(struct._fields_)

    def declared(fields: list[tuple[str, type]]) -> type[ctypes.Structure]:
        unnamed = getattr(struct, "_anonymous_", ())
        return type("Declared", (ctypes.Structure,), {"_anonymous_": unnamed, "_fields_": fields})

    _structs.check_struct(name, struct)
    with pytest.raises(ImportError, match=f"its {name} has {ctypes.sizeof(struct)} bytes, not"):
        _structs.check_struct(name, declared([*fields, ("more", ctypes.c_int64)]))
    with pytest.raises(ImportError, match=f"it has no {name}.other"):
        _structs.check_struct(name, declared([("other", fields[0][1]), *fields[1:]]))
    with pytest.raises(ImportError, match=rf"its {name} has \w+ at byte \d+, not \d+|its {name} has \d+ bytes, not"):
        _structs.check_struct(name, declared(fields[::-1]))


def test_another_library() -> None:
    other = ctypes.util.find_library("m")
    assert other is not None
    path = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if other in line)
    said = run("import tenon; tenon.ops()", environment={"TENON_LIBRARY": path})[1]
    assert f"ImportError: {path} is not the library of this package: " in said
    assert "TENON_LIBRARY names it: unset TENON_LIBRARY" in said
