"""Imported first: says what to do where there is no torch that the others could import."""

from __future__ import annotations

import re

_LEAST = (2, 10)
_WANTED = "tenon.torch needs PyTorch 2.10 or newer"


def _check() -> None:
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":  # torch is there, but something that it needs is not: its own words are best
            raise
        raise ImportError(f"{_WANTED}, and there is none: pip install torch") from None
    version = str(getattr(torch, "__version__", "no PyTorch"))
    if tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < _LEAST:
        where = getattr(torch, "__file__", None) or f"the folder {next(iter(torch.__path__))}"
        raise ImportError(f"{_WANTED}, and {where} is {version}: pip install --upgrade torch")


_check()
