"""Calls to test with, made from the samples in the operator table."""

from __future__ import annotations

from functools import partial

import functional
import numpy as np
import samples
import tensorflow as tf

import tenon.tensorflow as tn
from tenon.tensorflow._types import DTYPES


class Case(functional.Case):
    """One sample of one operator."""

    tn = tn

    @staticmethod
    def convert(values: np.ndarray, kind: str) -> tf.Tensor:
        return tf.cast(tf.constant(values), DTYPES[kind])

    @staticmethod
    def is_floating(tensor: tf.Tensor) -> bool:
        return tensor.dtype.is_floating


cases, one_each, dealt = partial(samples.cases, Case), partial(samples.one_each, Case), samples.dealt
each_operator = partial(samples.each_operator, Case)
