"""The tests of Tenon, in parts:  tools/test.py [-v] [PART …]   (no part: all of them;  --list says what there is)

Run by `make test`, `make test-quick`, `make lint` and `make test-gpu`, which set up what it needs.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

import changes
import gpu_parts
import lint
import table
from parts import ROOT, Part, choose, needs_packages, run_all

FUZZ_SECONDS = 22  # of each target
# C tests that part nvrtc runs, with the NVRTC of .venv; test_fuse_cuda is another, which it runs with all formulas.
OF_NVRTC = "kernel_text|device_header|device_code|scan_walk"
# `TENON_TEST_ALL=1 make test`: everything, where else a sample is taken that goes over the whole table.
ALL = "TENON_TEST_ALL" in os.environ
# What formulas are checked in, and operators under sanitizers: they take turns with the types, so that elements of
# every size are met.
TURNS = ("f16,bf16,f32,f64,i32,i64",) if ALL else ("f32,bf16,i32", "f64,f16,i64")
# Cases about the bits of results and about long sums: the sizes in them are those of others.
ASAN_CASES = () if ALL else ("--skip", "batch,accumulate,vocabulary,repeat")
# They plan dozens of calls of other operators for each of theirs; those have all of the cases.
ASAN_CALLERS = () if ALL else ("linear_cross_entropy", "linear_cross_entropy_tokens_grad")
# Cases in which threads have work; what a call computes is for part check to see.
TSAN_CASES = () if ALL else ("--case", "threads,concurrent,large,long_dims,fork")
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
TENSORFLOW = ROOT / ".venv" / "tensorflow" / "bin" / "python"
# Two parts run at a time, most often on two processors: PyTorch's other threads would only wait for a place. What is
# about threads asks for them.
PYTHON_ENV = {"PYTHONPATH": str(ROOT / "python"), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
# Inductor would start processes that each import torch: to compile what comes one at a time, and to see what
# instructions the processor has. It makes plain loops.
COMPILE_ENV = {**PYTHON_ENV, "TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "0"}
ASAN_ENV = {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
TSAN_ENV = {"TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0", "TENON_NUM_THREADS": "4"}


def ctest(folder: str, *more: str) -> list[str]:
    return ["ctest", "--test-dir", folder, "--output-on-failure", "--timeout", "600", "-j2", *more]


@cache
def tsan_runner() -> tuple[str, ...] | None:
    """What to put before a program built with -fsanitize=thread; None where such programs cannot run at all.

    Kernels that place memory more randomly than the sanitizer expects need `setarch -R`.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "probe"
        source = "int main(void) { return 0; }"
        build = ["cc", "-fsanitize=thread", "-x", "c", "-", "-o", str(program)]
        if subprocess.run(build, input=source, text=True, capture_output=True).returncode != 0:
            return None
        for runner in ((), ("setarch", "-R")):
            try:
                if subprocess.run([*runner, str(program)], capture_output=True).returncode == 0:
                    return runner
            except OSError:
                continue
    return None


def jax_env() -> dict[str, str]:
    """XLA compiles a thousand small programs that run once: its own loops need not be fast, and come sooner without the
    newer way to make them. An XLA that does not know a flag ends the process: the first is as old as XLA, the other one
    known to the XLA that the tests install."""
    flags = "--xla_backend_optimization_level=0"
    installed = importlib.util.find_spec("jax") and f"jax=={version('jax')}"
    if installed in Path(__file__).with_name("requirements-test.txt").read_text().splitlines():
        flags += " --xla_cpu_use_fusion_emitters=false"
    return {**PYTHON_ENV, "XLA_FLAGS": flags}


def no_tsan() -> str | None:
    return "programs built with -fsanitize=thread do not start on this kernel" if tsan_runner() is None else None


def under_tsan() -> list[list[str]]:
    runner = tsan_runner() or ()
    check = ["build/tsan/tenon", "check", "--quick", "--alone", "--dtype", "f32", *TSAN_CASES, *table.read().unlike]
    return [[*runner, *ctest("build/tsan")], [*runner, *check]]


def under_asan() -> list[list[str]]:
    ops = [name for name in table.read().unlike if name not in ASAN_CALLERS]
    check = ["build/asan/tenon", "check", "--quick", "--alone", *ASAN_CASES, "--dtype"]
    few = [*check, "bf16", "--case", "values,outputs,sliced,empty", *ASAN_CALLERS] if ASAN_CALLERS else None
    ours = ctest("build/asan", "-E", "^test_(device_header|device_code)$")  # of these NVRTC does the work
    return [ours, *([*check, types, *ops[i :: len(TURNS)]] for i, types in enumerate(TURNS)), *([few] if few else [])]


def checks() -> list[list[str]]:
    """Operators with kernels of their own in all types. One generator makes the loops of formulas."""
    known, check = table.read(), ["build/tenon", "check", "--quick", "--alone"]
    formulas = [[*check, "--dtype", types, *known.formulas[i :: len(TURNS)]] for i, types in enumerate(TURNS)]
    return [[*check, *known.own], *formulas]


def nvrtc_env() -> dict[str, str]:
    """All formulas rather than a sample, by the NVRTC of .venv where it is there."""
    found = sorted(ROOT.glob(".venv/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"))
    return {"TENON_TEST_NVRTC": "1", **({"TENON_NVRTC": str(found[0])} if found else {})}


def parts() -> list[Part]:
    """A part stands behind those that it needs. Seconds: on 2 cores, beside another part."""
    return [
        Part("build", "build/tenon and build/libtenon.so", [["tools/build.sh", "release"]], seconds=150),
        Part(
            "asan-build",
            "the same with clang, AddressSanitizer, UBSan and libFuzzer",
            [["tools/build.sh", "asan"]],
            needs=["build"],  # its device code
            seconds=120,
        ),
        Part(
            "asan",
            "C unit tests and check under AddressSanitizer and UBSan",
            under_asan,
            ASAN_ENV,
            needs=["build", "asan-build"],
            seconds=480,
        ),
        Part(
            "fuzz",
            "libFuzzer on the contract language and on formulas",
            [["tests/fuzz/run.sh", "build/asan", str(FUZZ_SECONDS)]],
            ASAN_ENV,
            needs=["asan-build"],
            seconds=50,
        ),
        Part(
            "tsan-build",
            "the same with ThreadSanitizer",
            [["tools/build.sh", "tsan"]],
            needs=["build"],
            seconds=45,
            unable=no_tsan,
        ),
        Part(
            "tsan",
            "C unit tests and check under ThreadSanitizer",
            under_tsan,
            TSAN_ENV,
            needs=["build", "tsan-build"],
            seconds=330,
        ),
        Part(
            "nvrtc",
            "NVRTC compiles all formulas, 150 random ones, device.cuh and kernels as text",
            [["build/test_fuse_cuda"], ctest("build", "-R", f"^test_({OF_NVRTC})$")],
            nvrtc_env(),
            needs=["build"],
            seconds=190,
        ),
        Part(
            "unit",
            "C unit tests",
            [ctest("build", "-E", f"^test_(fuse_cuda|{OF_NVRTC})$")],
            needs=["build"],
            seconds=190,
        ),
        Part(
            "check",
            "every operator against float64, and its gradient",
            checks,
            needs=["build"],
            seconds=380,
        ),
        Part(
            "python",
            "PyTorch: tests made from the operator table",
            [[*PYTEST, "tests/python"]],
            COMPILE_ENV,
            needs=["build"],
            seconds=750,
        ),
        Part(
            "jax",
            "JAX: tests made from the operator table",
            [[*PYTEST, "tests/jax"]],
            jax_env(),
            needs=["build"],
            seconds=310,
            unable=needs_packages("jax"),
        ),
        Part(
            "tensorflow",
            "TensorFlow: tests made from the operator table",
            [[str(TENSORFLOW), *PYTEST[1:], "tests/tensorflow"]],
            PYTHON_ENV,
            needs=["build"],
            seconds=200,
            unable=lambda: None if TENSORFLOW.is_file() else "tools/setup.sh tensorflow makes its environment",
        ),
        Part(
            "onnxruntime",
            "ONNX Runtime: tests made from the operator table",
            [[*PYTEST, "tests/onnxruntime"]],
            PYTHON_ENV,
            needs=["build"],
            seconds=60,
            unable=needs_packages("onnx", "onnxruntime", "ml_dtypes"),
        ),
        Part(
            "numpy",
            "NumPy: tests made from the operator table",
            [[*PYTEST, "tests/numpy"]],
            PYTHON_ENV,
            needs=["build"],
            seconds=20,
        ),
        Part(
            "together",
            "all frameworks in one process, and without some of them",
            [[*PYTEST, "tests/together"]],
            PYTHON_ENV,
            needs=["build"],
            seconds=20,
        ),
        Part(
            "doctor",
            "tenon doctor names faults that are planted; help that runs",
            [[*PYTEST, "tests/doctor", "tests/cli"]],
            needs=["build"],
            seconds=90,
        ),
        Part(
            "tools",
            "which tests a change needs, and how parts are run",
            [[*PYTEST, "tests/tools"]],
            needs=["build"],
            seconds=10,
        ),
        Part(
            "lessons",
            "examples/kernels and its READMEs; NVRTC compiles their kernels",
            [[*PYTEST, "tests/test_examples_kernels.py"]],
            {**PYTHON_ENV, **nvrtc_env()},
            needs=["build"],
            seconds=100,
            unable=needs_packages("torch"),
        ),
        Part(
            "docs",
            "the documents, followed to the letter",
            [[*PYTEST, "tests/test_docs.py", "tests/test_layers.py", "tests/test_project.py"]],
            COMPILE_ENV,
            needs=["build"],
            seconds=280,
        ),
        Part(
            "install",
            "the C library as it is installed, and what valgrind says of programs",
            [[*PYTEST, "tests/test_install.py"]],
            needs=["build"],
            seconds=25,
        ),
        Part(
            "wheel",
            "the wheel: made by pip, installed, used",
            [[*PYTEST, "tests/test_wheel.py"]],
            needs=["build"],
            seconds=25,
        ),
        Part(
            "cubins",
            "every CUDA kernel compiled by NVRTC 12, for the oldest GPUs",
            [[".venv/bin/python", "tools/release_cubins.py", "--quick"]],
            seconds=40,
        ),
        *lint.parts(),
    ]


# ---- on a GPU ------------------------------------------------------------------------------------------------------


def selection(given: argparse.Namespace) -> changes.Selection:
    """What --ops and --changed ask for; both: the operators among what has changed."""
    known = table.read()
    chosen = changes.EVERYTHING
    if given.changed:
        chosen = changes.select(changes.changed_files(given.changed, ROOT), ROOT, known)
    if given.ops:
        names = given.ops.split(",")
        unknown = [name for name in names if name not in known.names]
        if unknown:
            sys.exit(f"there is no operator '{unknown[0]}'; `build/tenon ops` lists them")
        ops = known.with_gradients(names)
        chosen = changes.Selection(frozenset(), ops if chosen.ops is None else ops & chosen.ops)
    return chosen


def chosen_gpu_parts(given: argparse.Namespace) -> list[Part]:
    chosen = selection(given)
    work = gpu_parts.units(table.read(), chosen)
    if given.part:
        work = gpu_parts.part_of(work, given.part)
    made = gpu_parts.parts(work, chosen, given.measure)
    return choose(made, given.parts) if made else []


def show(parts: list[Part], jobs: int) -> None:
    for part in parts:
        print(f"  {part.name:<12} {part.what:<58} {part.seconds:5.0f} s")
    total = sum(part.seconds for part in parts)
    longest = max((part.seconds for part in parts), default=0)
    print(f"  {len(parts)} parts, {total:.0f} s of work: about {max(total / jobs, longest):.0f} s, {jobs} at a time")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("parts", nargs="*", metavar="PART")
    arguments.add_argument("-v", "--verbose", action="store_true", help="show all output, not only that of failures")
    arguments.add_argument("--list", action="store_true", help="list what would run")
    arguments.add_argument("--gpu", action="store_true", help="the tests that need an NVIDIA GPU")
    arguments.add_argument("--ops", metavar="A,B", help="with --gpu: the tests of these operators and their gradients")
    arguments.add_argument("--changed", metavar="COMMIT", help="with --gpu: what the change since a commit touches")
    arguments.add_argument("--part", metavar="I/N", help="with --gpu: one of N shares of about the same length")
    arguments.add_argument("--measure", action="store_true", help="with --gpu: write tools/gpu_seconds.json")
    given = arguments.parse_args()
    if (given.ops or given.changed or given.part or given.measure) and not given.gpu:
        arguments.error("--ops, --changed, --part and --measure go with --gpu")
    chosen = chosen_gpu_parts(given) if given.gpu else choose(parts(), given.parts)
    jobs = min(16 if given.gpu else 4, os.cpu_count() or 1)
    if given.list:
        show(chosen, jobs)
        return 0
    # Dozens of processes import a framework: all but the first find it compiled.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print(f"Tests{' on the GPU' if given.gpu else ''}, with {sys.executable}; logs in build/logs")
    if not chosen:
        print("  nothing to run: what has changed is not tested on a GPU")
        return 0
    return run_all(chosen, given.verbose, jobs, gpu_parts.write_measured if given.measure else None)


if __name__ == "__main__":
    sys.exit(main())
