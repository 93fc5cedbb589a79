"""The C library as it is installed: its name and version, what it exports, programs built against it, and what valgrind
says of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
sys.path.insert(0, str(ROOT / "tools"))

import make_wheel  # noqa: E402

VERSION = make_wheel.project()["version"]
SONAME = make_wheel.LIBRARY
EXAMPLES = ROOT / "examples" / "c"


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, text=True, capture_output=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation, moved after it was made: nothing in it may know where it was."""
    if not (BUILD / "libtenon.a").is_file():
        run("cmake", "--build", BUILD, "--target", "libtenon.a")
    folder = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", BUILD, "--prefix", folder / "first")
    return (folder / "first").rename(folder / "moved")


def library_folder(prefix: Path) -> Path:
    (library,) = prefix.rglob(f"libtenon.so.{VERSION}")
    return library.parent


def dynamic(library: Path, tag: str) -> list[str]:
    return re.findall(rf"\({tag}\).*\[(.*)\]", run("readelf", "-d", library))


def use_library(prefix: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(library_folder(prefix))}


# ---- names and versions --------------------------------------------------------------------------------------------


def test_soname() -> None:
    assert f"libtenon.so.{VERSION.split('.')[0]}" == SONAME
    assert dynamic(BUILD / "libtenon.so", "SONAME") == [SONAME]
    assert dynamic(BUILD / "tenon", "NEEDED").count(SONAME) == 1


def test_version_macros(prefix: Path) -> None:
    header = (prefix / "include/tenon/version.h").read_text()
    numbers = [re.search(rf"#define TN_VERSION_{part} (\d+)", header) for part in ("MAJOR", "MINOR", "PATCH")]
    assert ".".join(number[1] for number in numbers if number) == VERSION
    assert run(prefix / "bin/tenon", "--version").split()[1] == VERSION


def declared() -> set[str]:
    """Functions and data of the public headers that are exported."""
    found: set[str] = set()
    for folder in (ROOT / "include", BUILD / "include"):
        for header in folder.rglob("*.h"):
            text = re.sub(r"/\*.*?\*/|^#.*?$", "", header.read_text(), flags=re.DOTALL | re.MULTILINE)
            for statement in re.findall(r"TN_API\b(.*?);", text, re.DOTALL):
                name = re.search(r"\b(tn_\w+|tenon_plugin)\s*[\[(]", statement + "(")
                assert name is not None, statement
                found.add(name[1])
    return found - {"tenon_plugin"}  # that of plugins


def test_exports_are_what_headers_declare() -> None:
    lines = (ROOT / "cmake" / "exports.txt").read_text().splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    table = run("nm", "-D", "--defined-only", BUILD / "libtenon.so")
    exported = {line.split()[-1].partition("@")[0] for line in table.splitlines()}
    assert len(declared()) > 100
    assert exported - declared() - listed == set(), "TN_API belongs in a public header, or cmake/exports.txt"
    assert (declared() | listed) - exported == set(), "declared, but not there"
    assert not declared() & listed


def test_static_library_has_no_other_names(prefix: Path) -> None:
    table = run("nm", "-g", "--defined-only", library_folder(prefix) / "libtenon.a")
    names = {line.split()[-1] for line in table.splitlines() if len(line.split()) == 3}
    assert declared() <= names
    assert all(name.startswith(("tn_", "tni_")) or name == "RegisterCustomOps" for name in names), names


def test_make_install() -> None:
    told = run("make", "-n", "-C", ROOT, "install", "PREFIX=/opt/x", "DESTDIR=/tmp/y")
    assert 'DESTDIR="/tmp/y" cmake --install build --prefix "/opt/x"' in told


# ---- programs ------------------------------------------------------------------------------------------------------


def pkg_config(prefix: Path, *words: str) -> list[str]:
    if not shutil.which("pkg-config"):
        pytest.skip("there is no pkg-config")
    (file,) = prefix.rglob("tenon.pc")
    return run("pkg-config", *words, "tenon", env={"PKG_CONFIG_PATH": str(file.parent)}).split()


def first(program: Path, prefix: Path) -> None:
    assert "0.0321 0.0871 0.2369 0.6439" in run(program, env=use_library(prefix))


def test_pkg_config(prefix: Path, tmp_path: Path) -> None:
    assert pkg_config(prefix, "--modversion") == [VERSION]
    flags = pkg_config(prefix, "--cflags", "--libs")
    run("cc", "-Wall", "-Wextra", "-Werror", EXAMPLES / "first.c", *flags, "-o", tmp_path / "first")
    first(tmp_path / "first", prefix)
    assert dynamic(tmp_path / "first", "NEEDED").count(SONAME) == 1


def test_a_kernel_as_text(prefix: Path, tmp_path: Path) -> None:
    flags = pkg_config(prefix, "--cflags", "--libs")
    run("cc", "-Wall", "-Wextra", "-Werror", EXAMPLES / "kernel.c", *flags, "-o", tmp_path / "kernel")
    assert "0 of 1000 numbers are wrong" in run(tmp_path / "kernel", env=use_library(prefix))


def test_flags_say_the_same(prefix: Path, tmp_path: Path) -> None:
    def places(flags: Sequence[str]) -> set[tuple[str, Path | str]]:
        return {(f[:2], Path(f[2:]).resolve() if f[:2] != "-l" else f[2:]) for f in flags if not f.startswith("-Wl,")}

    flags = run(prefix / "bin/tenon", "flags").split()
    assert places(flags) == places(pkg_config(prefix, "--cflags", "--libs"))
    run("cc", EXAMPLES / "first.c", *flags, "-o", tmp_path / "first")
    assert "0.6439" in run(tmp_path / "first")  # by its rpath


def test_statically(prefix: Path, tmp_path: Path) -> None:
    """Without LD_LIBRARY_PATH, and with nothing of Tenon to be loaded."""
    flags = [flag.replace("-ltenon", "-l:libtenon.a") for flag in pkg_config(prefix, "--static", "--cflags", "--libs")]
    run("cc", EXAMPLES / "first.c", *flags, "-o", tmp_path / "first")
    assert "0.6439" in run(tmp_path / "first")
    assert not [name for name in dynamic(tmp_path / "first", "NEEDED") if "tenon" in name]


def test_cmake_package(prefix: Path, tmp_path: Path) -> None:
    minor = ".".join(VERSION.split(".")[:2])
    (tmp_path / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.18)
project(user C)
find_package(tenon {minor} REQUIRED)
add_executable(shared {EXAMPLES / "first.c"})
target_link_libraries(shared PRIVATE tenon::tenon)
add_executable(linked_in {EXAMPLES / "first.c"})
target_link_libraries(linked_in PRIVATE tenon::static)
""")
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    assert "0.6439" in run(tmp_path / "build/shared") and "0.6439" in run(tmp_path / "build/linked_in")
    assert SONAME in dynamic(tmp_path / "build/shared", "NEEDED")
    (tmp_path / "CMakeLists.txt").write_text("project(user C)\nfind_package(tenon 900 REQUIRED)\n")
    command = ["cmake", "-S", tmp_path, "-B", tmp_path / "no", f"-DCMAKE_PREFIX_PATH={prefix}"]
    assert subprocess.run(command, capture_output=True).returncode != 0


def test_headers_are_for_cplusplus(prefix: Path, tmp_path: Path) -> None:
    if not shutil.which("c++"):
        pytest.skip("there is no C++ compiler")
    source = tmp_path / "first.cpp"
    source.write_text("""#include <cstdio>
#include <tenon.h>
int main() {
    float x[2] = {0, 0};
    int64_t shape[] = {2};
    tn_tensor t = tn_dense(x, TN_F32, 1, shape);
    tn_softmax_attrs attrs = TN_SOFTMAX_ATTRS;
    attrs.axis = 0;
    tn_host host = {};
    if (tn_softmax_on(&host, &t, nullptr, &attrs, &t) != TN_OK) return 1;
    std::printf("%g %s\\n", (double)x[0], TN_VERSION);
}
""")
    flags = pkg_config(prefix, "--cflags", "--libs")
    run("c++", "-std=c++11", "-Wall", "-Wextra", "-pedantic", "-Werror", source, *flags, "-o", tmp_path / "first")
    assert run(tmp_path / "first", env=use_library(prefix)) == f"0.5 {VERSION}\n"


HEADERS = sorted(path.relative_to(ROOT / "include") for path in (ROOT / "include").rglob("*.h"))


@pytest.mark.parametrize("language", [["cc", "-std=c11", "-x", "c"], ["c++", "-std=c++11", "-x", "c++"]])
def test_each_header_compiles_alone(prefix: Path, language: list[str]) -> None:
    if not shutil.which(language[0]):
        pytest.skip(f"there is no {language[0]}")
    assert Path("tenon/cuda.h") in HEADERS
    for header in [*HEADERS, "tenon/ops.h"]:
        flags = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", f"-I{prefix / 'include'}"]
        source = f"#include <{header}>\n"
        done = subprocess.run([*language, *flags, "-"], input=source, text=True, capture_output=True)
        assert done.returncode == 0, f"{header}: {done.stderr}"


def test_device_code_is_installed(prefix: Path) -> None:
    """One file that includes nothing, with the text that NVRTC gets."""
    text = (prefix / "include/tenon/device.cuh").read_text()
    assert "#pragma once" in text and "namespace tn {" in text
    assert "#include" not in text and "using namespace" not in re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert text.encode() in (BUILD / "libtenon.so").read_bytes()


# ---- nothing left behind -------------------------------------------------------------------------------------------

VALGRIND = ["valgrind", "-q", "--leak-check=full", "--show-leak-kinds=all", "--errors-for-leak-kinds=all"]


@pytest.mark.parametrize(("name", "arguments"), [("first", []), ("gpu", ["4"]), ("operators", ["32"])])
def test_valgrind(name: str, arguments: list[str], tmp_path: Path) -> None:
    flags = run(BUILD / "tenon", "flags").split()
    run("cc", "-g", "-Wall", "-Werror", "-O1", EXAMPLES / f"{name}.c", *flags, "-lm", "-o", tmp_path / name)
    run(tmp_path / name, *arguments, env={"CUDA_VISIBLE_DEVICES": ""})
    if not shutil.which("valgrind"):
        pytest.skip("there is no valgrind")
    env = {"TENON_NUM_THREADS": "2", "TENON_JIT": "0", "TENON_CACHE_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    run(*VALGRIND, "--error-exitcode=9", tmp_path / name, *arguments, env=env)
