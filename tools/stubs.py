"""Writes python/tenon/*/_functions.pyi, which type checkers and editors read, from the operator table.

    PYTHONPATH=python python tools/stubs.py            writes them
    PYTHONPATH=python python tools/stubs.py --check    says whether they are up to date

Operators are added in C, so their functions are not in any Python file; these tell tools about them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "python" / "tenon"

HEAD = "# Written by tools/stubs.py from the operator table: do not edit."

TORCH = """from collections.abc import Sequence

from torch import {names}

from tenon.torch._param import Param
"""

NUMPY = """from collections.abc import Sequence
from typing import Any

Array = Any
"""


def torch_stub() -> str:
    import tenon
    from tenon.torch._ops import torch_op
    from tenon.torch._public import write_stub

    functions = [write_stub(torch_op(name)) for name in tenon.ops()]
    names = [name for name in ("Tensor", "dtype") if any(f": {name}" in function for function in functions)]
    return "\n".join([HEAD, TORCH.format(names=", ".join(names)), *functions])


def numpy_stub() -> str:
    import tenon
    from tenon.numpy._ops import write_stub

    return "\n".join([HEAD, NUMPY, *map(write_stub, tenon.ops())])


# As they should be: the operators of the library, without those of plugins.
STUBS = {"torch": torch_stub, "numpy": numpy_stub}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="write nothing; 1 if one is not up to date")
    given = arguments.parse_args()
    for framework, text in STUBS.items():
        path = FOLDER / framework / "_functions.pyi"
        if not given.check:
            path.write_text(text())
        elif path.read_text() != text():
            print(f"{framework}/{path.name} is not what the table says: run `PYTHONPATH=python python tools/stubs.py`")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
