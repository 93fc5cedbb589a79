"""What is said where libtenon.so is missing, cut off or another project's package has taken its place."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build" / "libtenon.so"


def python(*words: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENON_")}
    return subprocess.run(
        [sys.executable, *words],
        env={**kept, "PYTHONPATH": str(ROOT / "python"), **env},
        text=True,
        capture_output=True,
        timeout=120,
    )


def cut(path: Path, to: int) -> Path:
    path.write_bytes(LIBRARY.read_bytes()[:to])
    return path


FAULTS = {
    "missing": (lambda folder: folder / "nowhere.so", "there is no libtenon.so: no /"),
    "empty": (lambda folder: cut(folder / "empty.so", 0), "is no library: it has 0 bytes"),
    "cut off": (lambda folder: cut(folder / "half.so", LIBRARY.stat().st_size // 2), "is cut off: it has "),
    "a text": (lambda folder: shutil.copy(ROOT / "README.md", folder / "text.so"), "is no library: it has "),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("words", [("-m", "tenon.doctor"), ("-m", "tenon", "doctor")])
def test_the_doctor_says_that_there_is_no_library(tmp_path: Path, fault: str, words: tuple[str, ...]) -> None:
    make, text = FAULTS[fault]
    env = {"TENON_LIBRARY": str(make(tmp_path))}
    done = python(*words, env=env)
    assert done.returncode == 1 and done.stderr == "", done
    assert done.stdout.startswith("FAIL  library  ") and text in done.stdout
    assert "fix           unset TENON_LIBRARY\n" in done.stdout and "1 failed" in done.stdout
    found = json.loads(python(*words, "--json", env=env).stdout)
    assert found["failed"] == 1 and found["checks"][0]["state"] == "FAIL" and text in found["checks"][0]["observed"]


@pytest.mark.parametrize("fault", FAULTS)
def test_importing_says_it_in_one_line(tmp_path: Path, fault: str) -> None:
    make, text = FAULTS[fault]
    env = {"TENON_LIBRARY": str(make(tmp_path))}
    done = python("-c", "import tenon; tenon.ops()", env=env)
    assert done.returncode == 1 and f"ImportError: {'' if fault == 'missing' else str(tmp_path)}" in done.stderr
    assert text in done.stderr and done.stderr.endswith(". TENON_LIBRARY names it: unset TENON_LIBRARY\n")
    done = python("-m", "tenon", "ops", env=env)
    assert done.returncode == 1 and done.stderr.startswith("tenon: ") and "Traceback" not in done.stderr


# What pip notes of where it had a package from, and what brings that again.
ORIGINS = {
    "an index": (None, "libtenon"),
    "a wheel": ('{"url": "file:///wheels/libtenon%200.whl", "archive_info": {}}', "'/wheels/libtenon 0.whl'"),
    "a folder": ('{"url": "file:///src/tenon", "dir_info": {}}', "/src/tenon"),
    "an address": ('{"url": "https://x.org/libtenon-0.whl", "archive_info": {}}', "https://x.org/libtenon-0.whl"),
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_what_brings_it_again_is_where_it_came_from(tmp_path: Path, origin: str) -> None:
    note, source = ORIGINS[origin]
    shutil.copytree(ROOT / "python/tenon", tmp_path / "tenon")
    info = tmp_path / "libtenon-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: libtenon\nVersion: 0\n")
    if note:
        (info / "direct_url.json").write_text(note)
    command = f"{sys.executable} -m pip install --force-reinstall {source}\n"
    done = python("-c", "import tenon; tenon.ops()", env={"PYTHONPATH": str(tmp_path)})
    assert done.stderr.endswith(f"libtenon.so. What brings it again: {command}")
    done = python("-m", "tenon.doctor", env={"PYTHONPATH": str(tmp_path)})
    assert f"fix           {command}" in done.stdout


def test_in_a_checkout_a_build_brings_it(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "python/tenon", tmp_path / "python/tenon")
    (tmp_path / "CMakeLists.txt").touch()
    done = python("-m", "tenon.doctor", env={"PYTHONPATH": str(tmp_path / "python")})
    assert f"fix           make -C {tmp_path} build\n" in done.stdout


def test_the_other_tenon_of_pypi_is_noticed(tmp_path: Path) -> None:
    info = tmp_path / "tenon-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tenon\nVersion: 1.2\n")
    (info / "RECORD").write_text("tenon/__init__.py,,\n")
    env = {"PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{tmp_path}"}
    done = python("-m", "tenon.doctor", "package", env=env)
    assert done.returncode == 1, done
    assert "'tenon' 1.2 of PyPI is there too: another project" in done.stdout
    assert f"pip uninstall tenon && make -C {ROOT} build\n" in done.stdout


def test_nothing_tells_people_to_install_the_other_one() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    for name in listed:
        if name.startswith(("bench/results/", "CHANGELOG")) or not (ROOT / name).is_file():
            continue
        text = (ROOT / name).read_text(errors="replace")
        for line in text.splitlines():
            command = re.split(r"[`#,;:]", line.partition("pip install")[2])[0]
            assert "tenon" not in re.split(r"[\s\"']+", command), f"{name}: {line}"
