"""Functions of the table are known to type checkers and editors."""

from __future__ import annotations

import signatures

import tenon.jax as tn


def test_up_to_date() -> None:
    signatures.assert_up_to_date("jax")


def test_says_what_the_functions_are() -> None:
    signatures.assert_says_what_functions_are("jax", tn)
