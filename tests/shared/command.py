"""The command `tenon` of the build, with the NVRTC of .venv where there is one: the program looks into no Python
environment by itself."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TENON = ROOT / "build/tenon"
NVRTC = sorted(ROOT.glob(".venv/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"))
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
if NVRTC:
    ENV.setdefault("TENON_NVRTC", str(NVRTC[0]))


def tenon(
    *words: str | Path, folder: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = {**ENV, **(env or {})}
    return subprocess.run([TENON, *words], text=True, capture_output=True, timeout=300, cwd=folder, env=done)


@cache
def has_nvrtc() -> bool:
    """Newer than the driver, or without one: it compiles all the same."""
    (check,) = json.loads(tenon("doctor", "nvrtc", "--json").stdout)["checks"]
    return str(check["observed"]).startswith("NVRTC ")
