"""The wheel for the other architecture: what `make wheels` left in dist, run by qemu-user.

The emulator has no GPU and, of x86_64, no AVX-512: of those kernels we see that they are there. Python of the other
architecture is not here either; the package is the same in both wheels.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import check_glibc  # noqa: E402
import follow_doc  # noqa: E402
import make_wheel  # noqa: E402

HERE = platform.machine()
OTHER = "x86_64" if HERE == "aarch64" else "aarch64"
ELF_NUMBERS = {"x86_64": 62, "aarch64": 183}
# What TENON_ISA may hold the library back to, and the kernels that it takes then.
KERNELS = {"aarch64": {"": "neon"}, "x86_64": {"": "avx2", "none": "sse2"}}
# Kernels of their own, and formulas that share no code.
OPERATORS = ("softmax", "layer_norm", "cross_entropy", "sum", "batch_norm", "rms_norm", "adamw_step", "mse", "quantize")


@dataclass
class Unpacked:
    machine: str
    folder: Path

    def run(self, *command: str, **variables: str) -> str:
        """What a program of this wheel's architecture prints."""
        emulator = ["qemu-" + self.machine, "-cpu", "max", "-L", f"/usr/{self.machine}-linux-gnu"]
        env = {name: value for name, value in os.environ.items() if not name.startswith("TENON")}
        env.update({"TENON_CACHE_DIR": str(self.folder / "cache"), "TENON_NUM_THREADS": "2", **variables})
        done = subprocess.run(
            [*(emulator if self.machine != HERE else []), str(self.folder / command[0]), *command[1:]],
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def tenon(self, *arguments: str, **variables: str) -> str:
        return self.run("tenon/tenon", *arguments, **variables)

    def programs(self) -> list[Path]:
        return [self.folder / "tenon" / name for name in make_wheel.BUILT]


def unpack(machine: str, to: Path) -> Unpacked:
    wheel = ROOT / "dist" / f"{make_wheel.name_and_version()}-py3-none-manylinux_2_28_{machine}.whl"
    if not wheel.is_file():
        pytest.fail(f"{wheel} is missing: `make wheels` makes it")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(to)
    found = Unpacked(machine, to)
    for program in found.programs():
        program.chmod(0o755)
    return found


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    return unpack(HERE, tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    return unpack(OTHER, tmp_path_factory.mktemp("other"))


def zig() -> str:
    """A C compiler for the other architecture."""
    (program,) = ROOT.glob(".venv/lib/python3*/site-packages/ziglang/zig")
    return f"{program} cc -target {OTHER}-linux-gnu.2.28"


# ---- what can be read ----------------------------------------------------------------------------------------------


def test_both_wheels_have_the_same_files(here: Unpacked, other: Unpacked) -> None:
    def files(wheel: Unpacked) -> dict[str, bytes | None]:
        unlike = {*wheel.programs(), *wheel.folder.glob("*.dist-info/WHEEL"), *wheel.folder.glob("*.dist-info/RECORD")}
        paths = [path for path in wheel.folder.rglob("*") if path.is_file()]
        return {str(p.relative_to(wheel.folder)): None if p in unlike else p.read_bytes() for p in paths}

    assert files(here) == files(other)


def test_programs_are_for_the_processor_and_for_old_systems(other: Unpacked) -> None:
    for program in other.programs():
        assert int.from_bytes(program.read_bytes()[18:20], "little") == ELF_NUMBERS[OTHER], program
        assert not check_glibc.too_new(program), program


def test_device_code_is_the_same(here: Unpacked, other: Unpacked) -> None:
    """As many packed files in one library as in the other; they begin with these bytes."""

    def images(wheel: Unpacked) -> int:
        return (wheel.folder / "tenon/libtenon.so").read_bytes().count(b"\xfd7zXZ\0")

    assert images(here) == images(other)


# ---- what can be run -----------------------------------------------------------------------------------------------


def test_command(here: Unpacked, other: Unpacked) -> None:
    assert other.tenon("--version") == here.tenon("--version")
    assert other.tenon("ops") == here.tenon("ops")
    assert other.tenon("ops", "--json") == here.tenon("ops", "--json")


def test_kernels(other: Unpacked) -> None:
    expected = {"aarch64": ["neon"], "x86_64": ["avx512", "avx2", "sse2"]}[OTHER]
    said = other.tenon("ops", "softmax").partition("kernels, best first\n")[2]
    rows = [line.split() for line in said.splitlines() if line]
    assert list(dict.fromkeys(row[0] for row in rows if row[1] == "cpu")) == [*expected, "ref"]


@pytest.mark.parametrize("isa", KERNELS[OTHER])
def test_operators(other: Unpacked, isa: str) -> None:
    said = other.tenon("check", "--quick", *OPERATORS, TENON_ISA=isa)
    assert "\n0 failed" in said or ", 0 failed" in said


def test_compiled_formula(other: Unpacked) -> None:
    """The library hands a formula to a C compiler and loads what comes out."""
    assert ", 0 failed" in other.tenon("fuse", "silu(x) * y", "--quick", TENON_CC=zig())


def test_c_program(other: Unpacked) -> None:
    (block,) = (b for b in follow_doc.blocks(ROOT / "README.md") if b.options.get("file") == "first.c")
    source = other.folder / "first.c"
    source.write_text(block.text)
    flags = other.tenon("flags").split()
    subprocess.run([*zig().split(), source, *flags, "-o", other.folder / "first"], check=True)
    assert other.run("first") == "0.090 0.245 0.665\n"
