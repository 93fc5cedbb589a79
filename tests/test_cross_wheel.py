"""The wheel for the other architecture: what `make wheels` left in dist, run by qemu-user.

The emulator has no GPU and, of x86_64, no AVX-512: we only see that those kernels are there. qemu 7.2 itself fails
("cpu == current_cpu") in the child of a fork when the program has threads, so that case of `tenon check` is left out.
There is no Python of the other architecture here, but the package is the same in both wheels.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import check_glibc  # noqa: E402
import follow_doc  # noqa: E402
import make_wheel  # noqa: E402

HERE = platform.machine()
OTHER = "x86_64" if HERE == "aarch64" else "aarch64"
ELF_NUMBERS = {"x86_64": 62, "aarch64": 183}
ISAS = {"aarch64": ["neon"], "x86_64": ["avx512", "avx2", "sse2"]}
# What TENON_ISA holds the library back to: of x86_64, AVX2 and SSE2 are tried.
HELD_BACK = {"aarch64": [""], "x86_64": ["", "none"]}
# Operators that share no code, in one type: the emulator takes 20 times as long as the machine.
OPERATORS = ("softmax", "layer_norm", "cross_entropy", "sum", "batch_norm", "rms_norm", "adamw_step", "quantize")
CHECK = ("--quick", "--skip", "fork")


def emulator(machine: str) -> list[str]:
    return [f"qemu-{machine}", "-cpu", "max", "-L", f"/usr/{machine}-linux-gnu"]


@dataclass
class Unpacked:
    machine: str
    folder: Path

    def run(self, *command: str, **variables: str) -> str:
        """What a program of this wheel's architecture prints."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("TENON")}
        env.update({"TENON_CACHE_DIR": str(self.folder / "cache"), "TENON_NUM_THREADS": "2", **variables})
        done = subprocess.run(
            [*(emulator(self.machine) if self.machine != HERE else []), str(self.folder / command[0]), *command[1:]],
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
    """Every file that the build for this machine embeds is in both libraries."""
    embedded = re.findall(r'^EMBED\(\w+, "(.+)"\)$', (ROOT / "build/generated/images.c").read_text(), re.MULTILINE)
    for wheel in (here, other):
        library = (wheel.folder / "tenon" / make_wheel.LIBRARY).read_bytes()
        assert [file for file in embedded if Path(file).read_bytes() not in library] == []


# ---- what can be run -----------------------------------------------------------------------------------------------


def test_command(here: Unpacked, other: Unpacked) -> None:
    assert other.tenon("--version") == here.tenon("--version")
    assert other.tenon("ops") == here.tenon("ops")


def test_kernels(here: Unpacked, other: Unpacked) -> None:
    """Both tables are the same, and every instruction set has the kernels that any other has."""

    def tables(wheel: Unpacked) -> Iterator[list[dict[str, Any]]]:
        """The table as it would be with one instruction set, for each of them."""
        rows = json.loads(wheel.tenon("ops", "--json"))
        isas = ISAS[wheel.machine]
        for isa in isas:
            kernels = [[k for k in row["kernels"] if k["name"] == isa or k["name"] not in isas] for row in rows]
            named = [[{**k, "name": k["name"].replace(isa, "vector")} for k in found] for found in kernels]
            yield [{**row, "kernels": found} for row, found in zip(rows, named, strict=True)]

    first, *rest = [*tables(here), *tables(other)]
    assert all(table == first for table in rest)
    assert "vector" in {kernel["name"] for kernel in first[0]["kernels"]}


@pytest.mark.parametrize("isa", HELD_BACK[OTHER])
def test_operators(other: Unpacked, isa: str) -> None:
    assert ", 0 failed" in other.tenon("check", *CHECK, "--dtype", "f32", *OPERATORS, TENON_ISA=isa)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_types(other: Unpacked, dtype: str) -> None:
    assert ", 0 failed" in other.tenon("check", *CHECK, "--dtype", dtype, "rms_norm")


# Before it uses a compiler, the library runs a program that the compiler made, which needs the emulator. zig rejects
# noseparate-code, which only makes files smaller.
COMPILER = """#!/bin/bash
set -e
for word; do [ "$word" = -Wl,-z,noseparate-code ] || words+=("$word"); done
{zig} "${{words[@]}}"
[[ " $* " != *" -shared "* ]] || exit 0
while [ "$1" != -o ]; do shift; done
mv "$2" "$2.program"
printf '#!/bin/sh\\nexec {emulator} %s.program' "$2" >"$2"
chmod +x "$2"
"""


def test_compiled_formula(other: Unpacked) -> None:
    """The library hands a formula to a C compiler and runs what comes out."""
    compiler = other.folder / "cc"
    compiler.write_text(COMPILER.format(zig=zig(), emulator=" ".join(emulator(OTHER))))
    compiler.chmod(0o755)
    said = other.tenon("doctor", "formula_cpu", TENON_CC=str(compiler))
    assert "right, by the C compiler's code" in said


def test_c_program(other: Unpacked) -> None:
    (block,) = (b for b in follow_doc.blocks(ROOT / "README.md") if b.options.get("file") == "first.c")
    source = other.folder / "first.c"
    source.write_text(block.text)
    flags = other.tenon("flags").split()
    subprocess.run([*zig().split(), source, *flags, "-o", other.folder / "first"], check=True)
    assert other.run("first") == "0.090 0.245 0.665\n"
