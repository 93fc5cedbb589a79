"""Writes _functions.pyi for each framework, which type checkers and editors read:  tools/stubs.py [--to FOLDER]

Operators are added in C, so their functions are in no Python file; these files tell tools about them. They are made of
the operator table of the built library, and of no framework: `make build` writes them into python/tenon, where git
ignores them, and the wheel has them.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "_functions.pyi"

HEAD = """# Written by tools/stubs.py from the operator table: do not edit.
from collections.abc import Sequence
from typing import Any
"""

# What the annotations mention besides.
NAMES = {
    "torch": "import torch\nfrom torch import Tensor, dtype\n\nfrom tenon.torch._param import Param\n",
    "jax": "import jax\nfrom jax import Array\nfrom numpy import dtype\n",
    "tensorflow": "from tensorflow import DType as dtype\nfrom tensorflow import Tensor\n",
    "numpy": "from typing import Any as dtype\n\nArray = Any\n",
}


def written(framework: str) -> set[str]:
    """The functions that stand in a Python file of the framework's own, with the parameters that people know there."""
    paths = [
        ROOT / "python" / "tenon" / framework / name
        for name in (
            "_attention.py",
            "_cumulative.py",
            "_functional.py",
            "_losses.py",
            "_products.py",
            "_reductions.py",
        )
    ]
    nodes = [node for path in paths if path.is_file() for node in ast.parse(path.read_text()).body]
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def stubs() -> dict[str, str]:
    """The text for each framework: the operators of the library, without those of plugins."""
    sys.path.insert(0, str(ROOT / "python"))
    import tenon
    from tenon._frameworks import FRAMEWORKS
    from tenon._public import shown_outputs

    texts = {}
    for framework, function in FRAMEWORKS.items():
        ops = [op for op in tenon.ops().values() if op.name not in written(framework)]
        texts[framework] = "\n".join([HEAD, NAMES[framework], *(function(op, shown_outputs(op)).stub() for op in ops)])
    return texts


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--to", type=Path, default=ROOT / "python" / "tenon", metavar="FOLDER")
    to: Path = arguments.parse_args().to
    for framework, text in stubs().items():
        path = to / framework / NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text() != text:  # else type checkers need not read it again
            path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
