"""Functions of the table are known to type checkers and editors."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

from conftest import ROOT

import tenon.torch as tn

STUB = ROOT / "python" / "tenon" / "torch" / "_functions.pyi"


def test_up_to_date() -> None:
    """In a process of its own: other tests load plugins."""
    done = subprocess.run([sys.executable, ROOT / "tools" / "stubs.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_says_what_the_functions_are() -> None:
    functions = {f.name: f for f in ast.parse(STUB.read_text()).body if isinstance(f, ast.FunctionDef)}
    assert {"softmax", "relu", "adamw_step"} <= set(functions)
    for name, stub in functions.items():
        function = getattr(tn, name)
        arguments = [a.arg for a in (*stub.args.args, *stub.args.kwonlyargs)]
        assert arguments == list(inspect.signature(function).parameters)
        assert ast.get_docstring(stub, clean=True) == inspect.cleandoc(function.__doc__)
