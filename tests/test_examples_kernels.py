"""The lessons of examples/kernels: they run, their READMEs say what they do, and NVRTC compiles them without a GPU."""

from __future__ import annotations

import ctypes
import os
import re
import runpy
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "python")]

import follow_doc  # noqa: E402
import tenon  # noqa: E402
from tenon import _lib  # noqa: E402

KERNELS = ROOT / "examples" / "kernels"
LESSONS = sorted(path.parent.name for path in KERNELS.glob("*/README.md"))
DEVICE = os.environ.get("TENON_TEST_DEVICE", "cpu")


def program(lesson: str) -> Path:
    return KERNELS / lesson / f"{lesson}.py"


def test_all_are_there() -> None:
    """The table of the overview has every folder, in an order to read them."""
    listed = re.findall(r"^\| \[[^]]+\]\((\w+)/README\.md\) \|", (KERNELS / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == LESSONS == sorted(path.parent.name for path in KERNELS.glob("*/*.py"))
    assert len(LESSONS) >= 15


@pytest.mark.parametrize("lesson", LESSONS)
def test_runs(lesson: str) -> None:
    pytest.importorskip("torch")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    first = [name for name in ("torch", "jax") if follow_doc.is_installed(name)]  # what the programs of READMEs need
    status, output = follow_doc.run_program(program(lesson), KERNELS, env, first, ["--device", DEVICE])
    assert status == 0, output
    assert "error against float64" in output and "microseconds" in output


@pytest.mark.parametrize("lesson", LESSONS)
def test_readme_is_true(lesson: str, tmp_path: Path) -> None:
    """Its programs run beside the lesson's file; what it shows of the kernel is in the file; it is one screen."""
    readme, file = KERNELS / lesson / "README.md", program(lesson)
    (tmp_path / file.name).write_text(file.read_text())
    for name in ("build", "python", "include"):
        (tmp_path / name).symlink_to(ROOT / name)
    follow_doc.follow(readme, tmp_path, tmp_path / "plugin")
    found = follow_doc.blocks(readme)
    assert [block for block in found if block.language == "python"], "it is used from PyTorch and JAX"
    lines = [line.removesuffix('""",').strip() for line in file.read_text().splitlines()]
    shown = [block for block in found if block.language in ("cuda", "text")]
    assert shown
    for block in shown:
        wanted = [line.strip() for line in block.text.splitlines() if line.strip() not in ("", "…")]
        assert [line for line in wanted if line not in lines] == [], block
    assert len(readme.read_text().splitlines()) <= 75


@pytest.mark.skipif(DEVICE == "cpu", reason="tests/test_docs.py follows them on the CPU")
@pytest.mark.parametrize("document", ["README.md", "docs/own-kernels.md"])
def test_the_way_there_on_a_gpu(document: str, tmp_path: Path) -> None:
    """The programs of the README and of the guide take the GPU where there is one."""
    for name in ("build", "python", "include"):
        (tmp_path / name).symlink_to(ROOT / name)
    follow_doc.follow(ROOT / document, tmp_path, tmp_path / "plugin")


@cache
def kernels(lesson: str) -> list[tenon.Kernel]:
    """Those that the lesson's file defines."""
    found = {k._address: k for k in runpy.run_path(str(program(lesson))).values() if isinstance(k, tenon.Kernel)}
    assert found
    return list(found.values())


@pytest.mark.parametrize("lesson", LESSONS)
def test_check(lesson: str) -> None:
    """What --check does. A gradient's kernel is checked with the one that has it."""
    types = ["--dtype", "f32"] if DEVICE == "cpu" else []
    gradients = [kernel._gradient for kernel in kernels(lesson)]
    for kernel in kernels(lesson):
        if all(gradient is None or gradient.name != kernel.name for gradient in gradients):
            kernel.check("--device", DEVICE, "--quick", *types)


# ---- NVRTC -------------------------------------------------------------------------------------------------------


class Built(ctypes.Structure):
    """tn_built"""

    _fields_ = [
        ("key", ctypes.c_uint64 * 2),
        ("major", ctypes.c_int32),
        ("minor", ctypes.c_int32),
        ("bytes", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
    ]


Add = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Built))


def parts(kernel: tenon.Kernel) -> dict[str, bytes]:
    """The text of a kernel, without that of its gradient."""
    text = _lib.kernel_text(kernel._address)
    found = re.split(r"^--- (\w+)\n", text, flags=re.MULTILINE)
    return {name: part.rstrip("\n").encode() for name, part in zip(found[1::2], found[2::2], strict=True)}


def compile_all(kernel: tenon.Kernel, major: int) -> list[int]:
    """The bytes of the code for each choice of types."""
    given = parts(kernel)
    source = _lib.Source(*(given.get(name) for name, _ in _lib.Source._fields_))
    sizes: list[int] = []

    def add(_: int, built: ctypes._Pointer[Built]) -> int:
        sizes.append(built.contents.bytes)
        return 0

    pointer, number = ctypes.c_void_p, ctypes.c_int
    build = _lib.lib.tni_source_build
    build.argtypes = [pointer, pointer, number, number, ctypes.c_char_p, Add, pointer]
    _lib.check(build(kernel._address, ctypes.addressof(source), major, 0, None, Add(add), None))
    return sizes


@pytest.fixture(scope="module")
def nvrtc() -> None:
    """There is one."""
    try:
        compile_all(tenon.kernel("my_nothing(x: f32[n]) -> y: f32[n]", cuda="__global__ void f(const float *x) {}"), 8)
    except tenon.TenonError as error:
        if "NVRTC" not in str(error) or "TENON_TEST_NVRTC" in os.environ:
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("lesson", LESSONS)
def test_nvrtc_compiles_it(lesson: str, nvrtc: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel and every kernel of a gradient, in f16, bf16, f32 and f64, for two architectures. On one of them
    indices are checked: lessons take turns."""
    turn = LESSONS.index(lesson) % 2
    for major, checked in ((8, str(turn)), (9, str(1 - turn))):
        monkeypatch.setenv("TENON_CHECK_INDEX", checked)
        for kernel in kernels(lesson):
            sizes = compile_all(kernel, major)
            assert len(sizes) == 4 and min(sizes) > 500, (kernel, major)
