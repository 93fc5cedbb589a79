"""Writes python/tenon/torch/_functions.pyi, which type checkers and editors read, from the operator table.

    PYTHONPATH=python python tools/stubs.py            writes it
    PYTHONPATH=python python tools/stubs.py --check    says whether it is up to date

Operators are added in C, so their functions are not in any Python file; this one tells tools about them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

STUB = Path(__file__).resolve().parent.parent / "python" / "tenon" / "torch" / "_functions.pyi"

HEAD = """# Written by tools/stubs.py from the operator table: do not edit.
from collections.abc import Sequence

from torch import {names}

from tenon.torch._param import Param
"""


def text() -> str:
    """The stub as it should be: the operators of the library, without those of plugins."""
    import tenon
    from tenon.torch._ops import torch_op
    from tenon.torch._public import write_stub

    functions = [write_stub(torch_op(name)) for name in tenon.ops()]
    names = [name for name in ("Tensor", "dtype") if any(f": {name}" in function for function in functions)]
    return "\n".join([HEAD.format(names=", ".join(names)), *functions])


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="write nothing; 1 if it is not up to date")
    given = arguments.parse_args()
    made = text()
    if not given.check:
        STUB.write_text(made)
    elif STUB.read_text() != made:
        print(f"{STUB.name} is not what the table says: run `PYTHONPATH=python python tools/stubs.py`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
