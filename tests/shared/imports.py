"""Importing Tenon in a process of its own, where a framework is missing or another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

HIDE = """
import importlib.abc, sys
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "{0}":
            raise ModuleNotFoundError("there is none", name="{0}")
sys.meta_path.insert(0, Hide())
import tenon.{0}
"""


def run(code: str, folder: Path | None = None, environment: dict[str, str] | None = None) -> tuple[str, str]:
    """What a program prints, and what it says of errors; packages of the folder are found first."""
    path = os.pathsep.join(str(p) for p in (folder, ROOT / "python") if p)
    environment = {**os.environ, **(environment or {}), "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    return done.stdout, done.stderr


def assert_asks_for(package: str, title: str, least: str) -> None:
    """Where there is none, the adapter says what to install."""
    message = f"ImportError: tenon.{package} needs {title} {least} or newer, and there is none: pip install {package}"
    assert message in run(HIDE.format(package))[1]


def assert_refuses(package: str, version: str, folder: Path) -> None:
    """A version that is too old is named."""
    (folder / f"{package}.py").write_text(f"__version__ = '{version}'")
    said = run(f"import tenon.{package}", folder)[1]
    assert f"{package}.py is {version}: pip install --upgrade {package}" in said
