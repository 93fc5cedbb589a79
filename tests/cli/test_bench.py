"""`tenon bench --kernels`: a call by several kernels, beside each other."""

from __future__ import annotations

import json
import re

import pytest
from command import tenon

SHAPE = ("linear", "--shape", "r=[64] k=256 n=128", "--ms", "1")


def rows(text: str) -> dict[str, tuple[float, float]]:
    """TFLOP/s and the share of the best, by kernel."""
    found = re.findall(r"^(\w+) .* ([\d.e-]+) +[\d.]+ +([\d.]+)%$", text, re.MULTILINE)
    return {name: (float(rate), float(share)) for name, rate, share in found}


def test_all_kernels_beside_each_other() -> None:
    found = rows(tenon("bench", *SHAPE, "--kernels", "all").stdout)
    assert len(found) > 1 and "ref" not in found
    assert max(share for _, share in found.values()) == 100
    best = max(rate for rate, _ in found.values())
    for rate, share in found.values():
        assert share == pytest.approx(100 * rate / best, rel=0.01)


def test_some_of_them() -> None:
    (fast, *_) = rows(tenon("bench", *SHAPE, "--kernels", "all").stdout)
    found = rows(tenon("bench", *SHAPE, "--kernels", f"ref,{fast}").stdout)
    assert set(found) == {"ref", fast} and found["ref"][1] < found[fast][1]


def test_for_a_program() -> None:
    results = json.loads(tenon("bench", *SHAPE, "--kernels", "all", "--json").stdout)["results"]
    assert len({row["kernel"] for row in results}) == len(results) > 1
    assert all(row["flops"] == 2 * 64 * 256 * 128 for row in results)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kernels", "fastest"), "linear has no such kernel here"),
        (("--kernels", "all", "--kernel", "ref"), "either --kernel or --kernels"),
    ],
)
def test_mistakes(words: tuple[str, ...], message: str) -> None:
    done = tenon("bench", *SHAPE, *words)
    assert done.returncode != 0 and message in done.stderr
