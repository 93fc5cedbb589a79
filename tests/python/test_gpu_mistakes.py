"""Mistakes that CUDA kernels really have (tests/plugins/gpu_mistakes.cu) are caught on a GPU, each with a reason."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
TENON = ROOT / "build" / "tenon"
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin:/opt/cuda/bin")

pytestmark = pytest.mark.skipif(NVCC is None, reason="no nvcc")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

# Operator, the cases that are asked, what the reason says.
MISTAKES = [
    ("write_past", "values", "Writes out of bounds, just outside of the output."),
    ("read_past", "values", "Reads out of bounds: the result changes with what lies outside of x."),
    ("far_away", "values", "Out of bounds by so much that the GPU stopped"),
    ("index_32", "huge", "An index or a size does not fit in 32 bits."),
    ("vectors", "misaligned", "A vector load or store (float4, double2, int4) at an address that is not a multiple"),
    ("tail", "values", "A missing tail: just the last 232 of 1000 elements were never written."),
    ("stream", "side_stream", "Launch in call->host->stream"),
    ("drops_nan", "special", "NaN is dropped"),
    ("unwritten", "values", "elements of the output were never written, here and there."),
    ("race", "values,repeat", "A data race: the same call gives different results."),
    ("shared", "values", "the kernel reads shared memory that nobody has written yet."),
    ("barrier", "values", "__syncthreads() is missing between the threads that write and those that read."),
    ("gradient", "grad", "The gradient is not the slope of the function."),
]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    made = tmp_path_factory.mktemp("mistakes") / "gpu_mistakes.so"
    source = ROOT / "tests" / "plugins" / "gpu_mistakes.cu"
    arch = "native" if torch.cuda.is_available() else "sm_90"
    flags = ["-shared", "-Xcompiler", "-fPIC", "-std=c++20", "-lineinfo", f"-arch={arch}", f"-I{ROOT / 'include'}"]
    ran = subprocess.run([str(NVCC), *flags, str(source), "-o", str(made)], capture_output=True, text=True)
    assert ran.returncode == 0 and "warning" not in ran.stderr, ran.stderr
    return made


def check(plugin: pathlib.Path, *arguments: str, sanitize: bool = False) -> tuple[int, dict[str, Any]]:
    command = [str(TENON), "check", *arguments, "--load", str(plugin), "--json"]
    env = {**os.environ, "NO_COLOR": "1"} | ({} if sanitize else {"TENON_CHECK_CHILD": "1"})  # which keeps it away
    ran = subprocess.run(command, capture_output=True, text=True, env=env)
    assert ran.returncode in (0, 1), ran.stderr
    return ran.returncode, json.loads(ran.stdout)


def reasons(said: dict[str, Any]) -> list[str]:
    return [case.get("why", "") for operator in said["operators"] for case in operator["cases"]]


def test_the_references_are_right(plugin: pathlib.Path) -> None:
    """Without a GPU too: what is wrong with these operators is wrong with their CUDA kernels, but for the gradient."""
    names = [f"mistake_{name}" for name, _, _ in MISTAKES]
    status, said = check(plugin, *names, "mistake_none", "--quick", "--case", "values", "--alone")
    assert (status, said["failed"]) == (0, 0) and said["passed"] > 2 * len(names)
    status, said = check(plugin, "mistake_gradient", "--quick", "--case", "grad", "--dtype", "f64")
    assert status == 1 and "The gradient is not the slope of the function." in reasons(said)[0]


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_the_kernel_that_fills_shared_memory_assembles(tmp_path: pathlib.Path, arch: str) -> None:
    """It is PTX in cli/poison.c, which the driver compiles when a GPU is there."""
    text = (ROOT / "cli" / "poison.c").read_text()
    literals = re.findall(r'"((?:[^"\\]|\\.)*)"', text[text.index("ptx[] =") : text.index("enum {")])
    source = tmp_path / "fill.ptx"
    source.write_text("".join(literals).replace("\\n", "\n"))
    ptxas = str(pathlib.Path(str(NVCC)).with_name("ptxas"))
    ran = subprocess.run([ptxas, f"-arch={arch}", source, "-o", tmp_path / "fill"], capture_output=True, text=True)
    assert ran.returncode == 0 and "fill_shared" in source.read_text(), ran.stderr


@on_gpu
def test_what_is_right_passes(plugin: pathlib.Path) -> None:
    """And is not accused of anything: every case but the one that breaks the context."""
    status, said = check(plugin, "mistake_none", "--device", "cuda", "--quick", "--skip", "sticky")
    assert (status, said["failed"]) == (0, 0), said
    assert said["passed"] > 50


@on_gpu
@pytest.mark.parametrize(("name", "cases", "sentence"), MISTAKES, ids=lambda value: value)
def test_mistakes_are_caught(plugin: pathlib.Path, name: str, cases: str, sentence: str) -> None:
    types = "f64" if cases == "grad" else "f32"
    arguments = ("--device", "cuda", "--quick", "--dtype", types, "--kernel", "cuda", "--case", cases)
    for _ in range(5):  # kernels of other processes may come in between, and leave their own in shared memory
        status, said = check(plugin, f"mistake_{name}", *arguments)
        assert status == 1, said
        if any(sentence in why for why in reasons(said)):
            return
    raise AssertionError(said)


# What the tool adds, where it is installed: the line of the mistake, and the missing barrier by its name.
FOUND = [("write_past", "memcheck", "Invalid __global__ write"), ("read_past", "memcheck", "Invalid __global__ read")]
FOUND += [("barrier", "racecheck", "Race reported")]


@on_gpu
@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="no compute-sanitizer")
@pytest.mark.parametrize(("name", "tool", "sentence"), FOUND)
def test_the_line_is_named(plugin: pathlib.Path, name: str, tool: str, sentence: str) -> None:
    arguments = ("--device", "cuda", "--quick", "--dtype", "f32", "--case", "values")
    status, said = check(plugin, f"mistake_{name}", *arguments, sanitize=True)
    assert status == 1
    assert any(f"({tool}): " in why and sentence in why and "gpu_mistakes.cu:" in why for why in reasons(said)), said


# ---- TENON_SYNC ------------------------------------------------------------------------------------------------------

SYNC = """
import sys, torch, tenon, tenon.torch as tn
tenon.load(sys.argv[1])
x = torch.ones(4, 8, device="cuda")
torch.cuda.synchronize()
try:
    tn.mistake_far_away(x)
    print("no error")
except Exception as error:
    print(error)
"""
CAPTURE = """
import torch, tenon.torch as tn
x = torch.randn(4, 8, device="cuda")
wanted = tn.softmax(x)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = tn.softmax(x)
    z = tn.softmax(x)
graph.replay()
print(torch.equal(y, wanted), torch.equal(z, wanted))
"""


def run_python(text: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run([sys.executable, "-c", text, *arguments], capture_output=True, text=True, env=env)


@on_gpu
def test_a_failure_names_its_call(plugin: pathlib.Path) -> None:
    assert run_python(SYNC, str(plugin), TENON_SYNC="0").stdout == "no error\n"
    said = run_python(SYNC, str(plugin), TENON_SYNC="1").stdout
    assert "mistake_far_away: kernel 'cuda' failed: " in said and "illegal memory access" in said
    assert "x: f32[4, 8], y: f32[4, 8]" in said


@on_gpu
def test_graphs_are_captured_all_the_same() -> None:
    ran = run_python(CAPTURE, TENON_SYNC="1")
    assert ran.stdout == "True True\n", ran.stderr
    assert ran.stderr.count("TENON_SYNC does not wait while a CUDA graph is captured") == 1
