"""Operators whose contracts use what the built-in ones do not (unusual_ops.c), as a shared object."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent


def compile_plugin(
    folder: pathlib.Path, source: pathlib.Path = HERE / "unusual_ops.c", name: str = "plugin"
) -> pathlib.Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    made = folder / f"{name}.so"
    command = [compiler, "-shared", "-fPIC", "-O1", f"-I{HERE.parents[1] / 'include'}", str(source), "-o", str(made)]
    subprocess.run(command, check=True)
    return made
