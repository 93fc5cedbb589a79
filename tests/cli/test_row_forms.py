"""A row comes out with the same bits whatever is computed beside it: how its elements are shared out goes by their
number and types alone. Read from the text that formulas become for a GPU, so it needs none."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORMULAS = {
    "softmax": ("s(x: T[*r, c]) -> y: T[*r, c] : e = exp(x - max(x, axis=-1)); y = e / sum(e, -1)", ()),
    "rms_norm": (
        "n(x: T[*r, c], g: W[c]) -> y: T[*r, c] : y = x * rsqrt(mean(x * x, -1) + 1e-6) * g",
        ("g=[{n}]", "W=f32"),
    ),
    "layer_norm_grad": (
        "n(x: T[*r, c], dy: T[*r, c], g: W[c]) -> dx: T[*r, c], dg: W[c] : "
        "h = x * rsqrt(mean(x * x, -1) + 1e-6); dx = dy * g - h * mean(dy * g * h, -1); dg = sum_to(dy * h, g)",
        ("dy=[{rows}, {n}]", "g=[{n}]", "W=f32"),
    ),
}
LENGTHS = (7, 33, 768, 1000, 3001, 5003, 8192, 18432, 28672, 50257, 131072)


def form(formula: str, shapes: str, type: str) -> list[str]:
    """Vectors, how many of them a thread has, threads of a row and blocks of a cluster, of each kernel."""
    command = [ROOT / "build/tenon", "fuse", formula, "--shape", shapes, "--type", type, "--show", "cuda"]
    text = subprocess.run(command, text=True, capture_output=True, check=True, timeout=60).stdout
    text = text[text.index("struct tn_params") :]
    bodies = re.findall(r"tn_body_\d+_\d+<(\d+), (\d+), \d+>\(p", text)
    clusters = re.findall(r"if \(tid < (\d+)\) store_cluster", text)
    return sorted({" ".join(body) for body in bodies} | set(re.findall(r"across = (\d+);", text)) | set(clusters))


@pytest.mark.parametrize("type", ["bf16", "f32"])
@pytest.mark.parametrize("name", FORMULAS)
def test_a_row_alone_is_shared_out_as_beside_others(name: str, type: str) -> None:
    formula, others = FORMULAS[name]
    for n in LENGTHS:
        forms = []
        for rows in (1, 2, 67):
            shapes = " ".join(["x=[{rows}, {n}]", *others])
            forms.append(form(formula, shapes.format(rows=rows, n=n), type))
        assert forms[0] and forms[0] == forms[1] == forms[2], f"rows of {n} elements: {forms}"
