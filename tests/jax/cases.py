"""Calls to test with, made from the samples in the operator table."""

from __future__ import annotations

from functools import partial
from typing import Any

import functional
import jax
import jax.numpy as jnp
import numpy as np
import samples

import tenon.jax as tn
from tenon.jax._types import DTYPES


class Case(functional.Case):
    """One sample of one operator."""

    tn = tn

    @staticmethod
    def convert(values: np.ndarray, kind: str) -> jax.Array:
        return jnp.asarray(values, DTYPES[kind])

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        return jnp.issubdtype(tensor.dtype, jnp.floating)


cases, one_each, dealt = partial(samples.cases, Case), partial(samples.one_each, Case), samples.dealt
each_operator = partial(samples.each_operator, Case)
