"""What adapters ask first: whether there is a framework that they can use, and what to do where there is none."""

from __future__ import annotations

import re
from importlib import import_module


def need(package: str, title: str, least: str, install: str = "") -> None:
    """Raises ImportError unless `package` is there, from version `least` on; `install`: what else pip may be told."""
    wanted = f"tenon.{package} needs {title} {least} or newer"
    try:
        found = import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:  # it is there, but something that it needs is not: its own words are best
            raise
        raise ImportError(f"{wanted}, and there is none: pip install {package}{install}") from None
    version = str(getattr(found, "__version__", f"no {title}"))
    if _numbers(version) < _numbers(least):
        where = getattr(found, "__file__", None) or f"the folder {next(iter(found.__path__))}"
        raise ImportError(f"{wanted}, and {where} is {version}: pip install --upgrade {package}")


def _numbers(version: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", version)[:2]]
