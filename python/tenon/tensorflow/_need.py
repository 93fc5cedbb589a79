"""Imported first: says what to do where there is no TensorFlow that the others could import."""

from __future__ import annotations

import re

_LEAST = (2, 16)
_WANTED = "tenon.tensorflow needs TensorFlow 2.16 or newer"


def _check() -> None:
    try:
        import tensorflow
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":  # it is there, but something that it needs is not: its own words are best
            raise
        raise ImportError(f"{_WANTED}, and there is none: pip install tensorflow") from None
    version = str(getattr(tensorflow, "__version__", "no TensorFlow"))
    if tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < _LEAST:
        where = getattr(tensorflow, "__file__", None) or f"the folder {next(iter(tensorflow.__path__))}"
        raise ImportError(f"{_WANTED}, and {where} is {version}: pip install --upgrade tensorflow")


_check()
