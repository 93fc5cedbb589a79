"""What tests of every framework ask of its _functions.pyi."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def assert_up_to_date(framework: str) -> None:
    """In a process of its own: other tests load plugins."""
    command = [sys.executable, ROOT / "tools" / "stubs.py", "--check", framework]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def assert_says_what_functions_are(framework: str, tn: ModuleType) -> None:
    text = (ROOT / "python" / "tenon" / framework / "_functions.pyi").read_text()
    functions = {f.name: f for f in ast.parse(text).body if isinstance(f, ast.FunctionDef)}
    assert {"softmax", "relu", "adamw_step"} <= set(functions)
    for name, stub in functions.items():
        function = getattr(tn, name)
        arguments = [a.arg for a in (*stub.args.args, *stub.args.kwonlyargs)]
        assert arguments == list(inspect.signature(function).parameters)
        assert ast.get_docstring(stub, clean=True) == inspect.cleandoc(function.__doc__)
