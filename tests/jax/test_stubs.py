"""Functions of the table are known to type checkers and editors."""

from __future__ import annotations

from pathlib import Path

from signatures import assert_says_what_functions_are, write_stub

import tenon.jax as tn


def test_says_what_the_functions_are(tmp_path: Path) -> None:
    assert_says_what_functions_are(write_stub("jax", tmp_path), tn)
