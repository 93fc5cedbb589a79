"""examples/c/cublaslt.c, an author's operator by cuBLASLt, on a GPU and with a library that are made up."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from command import ROOT

BUILD = ROOT / "build"
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
HEADERS = Path(NVCC).resolve().parents[1] / "include"

CASES = "values,repeat,threads,leaks"
needs_header = pytest.mark.skipif(not (HEADERS / "cublasLt.h").exists(), reason="there is no cublasLt.h")


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cublaslt") / "lt.so"
    flags = subprocess.run([BUILD / "tenon", "flags", "--cflags"], text=True, capture_output=True, check=True)
    source = ROOT / "examples/c/cublaslt.c"
    warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers")
    command = [
        "cc",
        "-O2",
        *warnings,
        "-shared",
        "-fPIC",
        source,
        *flags.stdout.split(),
        "-isystem",
        HEADERS,
        "-o",
        made,
    ]
    subprocess.run(command, check=True)
    return made


def on_gpu(plugin: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LD_PRELOAD": str(BUILD / "fake_cuda.so"), "TENON_CHECK_CHILD": "1"}
    env |= {"TENON_CUBLASLT": str(BUILD / "fake_cublaslt.so"), **variables}
    command = [BUILD / "tenon", "--load", plugin, *words, "--device", "cuda"]
    return subprocess.run(command, text=True, capture_output=True, timeout=120, env=env)


@needs_header
def test_it_is_right(plugin: Path) -> None:
    done = on_gpu(plugin, "check", "--only-loaded", "--dtype", "f32", "--kernel", "cublaslt", "--case", CASES)
    assert done.returncode == 0 and " 0 failed" in done.stdout and "library_product" in done.stdout, done.stdout
    assert " 0 passed" not in done.stdout


@needs_header
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TENON_CUBLASLT": "none"}, "library_product: TENON_CUBLASLT=none turns cuBLASLt off"),
        ({"FAKE_CUBLASLT": "finds nothing"}, "preparing the product: CUBLAS_STATUS_NOT_SUPPORTED (the functionality"),
        ({"FAKE_CUBLASLT": "fails"}, "cublasLtMatmul: CUBLAS_STATUS_OTHER (something else)"),
    ],
)
def test_it_says_what_is_wrong(plugin: Path, variables: dict[str, str], message: str) -> None:
    shape = ("--shape", "m=8 n=8 k=8", "--ms", "1", "--kernel", "cublaslt")
    done = on_gpu(plugin, "bench", "library_product", *shape, **variables)
    assert done.returncode == 1 and message in done.stderr
