"""What tests of every framework ask of its _functions.pyi."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def write_stub(framework: str, folder: Path) -> str:
    """The text that tools/stubs.py writes, in a process without any package, and without the plugins of other tests."""
    subprocess.run([sys.executable, "-I", "-S", ROOT / "tools" / "stubs.py", "--to", folder], check=True)
    return (folder / framework / "_functions.pyi").read_text()


def assert_says_what_functions_are(text: str, tn: ModuleType) -> None:
    functions = {f.name: f for f in ast.parse(text).body if isinstance(f, ast.FunctionDef)}
    assert {"swiglu", "sigmoid", "adamw_step"} <= set(functions) <= set(tn.ops())
    for name, stub in functions.items():
        function = getattr(tn, name)
        arguments = [*stub.args.args, *stub.args.kwonlyargs]
        shown = inspect.signature(function).parameters
        assert [a.arg for a in arguments] == list(shown)
        assert [a.arg for a in stub.args.kwonlyargs] == [p.name for p in shown.values() if p.kind == p.KEYWORD_ONLY]
        assert ast.get_docstring(stub, clean=True) == inspect.cleandoc(function.__doc__)
