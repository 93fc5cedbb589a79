"""Writes python/tenon/*/_functions.pyi, which type checkers and editors read, from the operator table.

    PYTHONPATH=python python tools/stubs.py [FRAMEWORK …]            writes them
    PYTHONPATH=python python tools/stubs.py --check [FRAMEWORK …]    says whether they are up to date

Without a name it does those that this Python has; TensorFlow's is .venv/tensorflow/bin/python.

Operators are added in C, so their functions are not in any Python file; these tell tools about them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
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

JAX = """from collections.abc import Sequence
from typing import Any

from jax import Array
"""

TENSORFLOW = """from collections.abc import Sequence
from typing import Any

from tensorflow import Tensor
"""


def torch_stub() -> str:
    import tenon
    from tenon.torch._ops import torch_op
    from tenon.torch._public import write_stub

    functions = [write_stub(torch_op(name)) for name in tenon.ops()]
    names = [name for name in ("Tensor", "dtype") if any(f": {name}" in function for function in functions)]
    return "\n".join([HEAD, TORCH.format(names=", ".join(names)), *functions])


def stub_of(module: str, head: str) -> str:
    import tenon

    return "\n".join([HEAD, head, *map(import_module(module).write_stub, tenon.ops().values())])


# As they should be: the operators of the library, without those of plugins.
STUBS: dict[str, Callable[[], str]] = {
    "torch": torch_stub,
    "numpy": partial(stub_of, "tenon.numpy._ops", NUMPY),
    "jax": partial(stub_of, "tenon.jax._public", JAX),
    "tensorflow": partial(stub_of, "tenon.tensorflow._public", TENSORFLOW),
}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="write nothing; 1 if one is not up to date")
    arguments.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help=", ".join(STUBS))
    given = arguments.parse_args()
    unknown = set(given.frameworks) - set(STUBS)
    if unknown:
        arguments.error(f"there is no {unknown.pop()}, only {', '.join(STUBS)}")
    for framework in given.frameworks or [name for name in STUBS if find_spec(name) is not None]:
        path, text = FOLDER / framework / "_functions.pyi", STUBS[framework]()
        if not given.check:
            path.write_text(text)
        elif path.read_text() != text:
            command = f"PYTHONPATH=python python tools/stubs.py {framework}"
            print(f"{framework}/{path.name} is not what the table says: run `{command}`")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
