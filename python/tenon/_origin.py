"""Where this package came from, and the command that brings it again."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from pathlib import Path
from urllib.parse import unquote

NAME = "libtenon"  # pip's name for this package; on PyPI, `tenon` is another project
PIP = f"{shlex.quote(sys.executable)} -m pip"
_PACKAGE = Path(__file__).resolve().parent


def installed(package: Path = _PACKAGE) -> importlib.metadata.Distribution | None:
    """What pip knows of the package; None where pip did not install it."""
    for found in importlib.metadata.distributions(name=NAME):
        if Path(str(found.locate_file("tenon"))).resolve() == package:
            return found
    return None


def source() -> str:
    """What pip is told to install: the wheel or the folder that this came from, or its name where that was an index."""
    found = installed()
    if found is None:
        return f"{NAME}.whl   # the wheel file of your system, or a checkout"
    address = str(json.loads(found.read_text("direct_url.json") or "{}").get("url", NAME))
    return shlex.quote(unquote(address.removeprefix("file://")))


def reinstall() -> str:
    """The command."""
    checkout = _PACKAGE.parents[1]
    if (checkout / "CMakeLists.txt").is_file():
        return f"make -C {shlex.quote(str(checkout))} build"
    return f"{PIP} install --force-reinstall {source()}"
