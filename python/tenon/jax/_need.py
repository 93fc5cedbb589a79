"""Imported first: says what to do where there is no JAX that the others could import."""

from __future__ import annotations

import re

_LEAST = (0, 8)
_WANTED = "tenon.jax needs JAX 0.8 or newer"


def _check() -> None:
    try:
        import jax
    except ModuleNotFoundError as error:
        if error.name != "jax":  # jax is there, but something that it needs is not: its own words are best
            raise
        raise ImportError(f'{_WANTED}, and there is none: pip install jax (for NVIDIA GPUs: "jax[cuda13]")') from None
    version = str(getattr(jax, "__version__", "no JAX"))
    if tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < _LEAST:
        where = getattr(jax, "__file__", None) or f"the folder {next(iter(jax.__path__))}"
        raise ImportError(f"{_WANTED}, and {where} is {version}: pip install --upgrade jax")


_check()
