"""A locale of another country, which a host program may have set; few machines have one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def make_locale(folder: Path, name: str) -> dict[str, str]:
    """The environment of a process that can set the locale `name`, such as de_DE."""
    if shutil.which("localedef") is None:
        pytest.skip("no localedef")
    made = subprocess.run(["localedef", "-i", name, "-f", "UTF-8", folder / name], capture_output=True, text=True)
    if not (folder / name / "LC_NUMERIC").is_file():
        pytest.skip(f"localedef cannot make {name}: {made.stderr}")
    return {**os.environ, "LOCPATH": str(folder)}
