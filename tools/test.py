"""The tests of Tenon, in parts:  tools/test.py [-v] [PART …]   (no part: all of them;  --list says what there is)

Run by `make test`, `make test-quick` and `make test-gpu`, which set up what it needs.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from parts import ROOT, Part, choose, run_all

FUZZ_SECONDS = 45
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
TENSORFLOW = ROOT / ".venv" / "tensorflow" / "bin" / "python"
PYTHON_ENV = {"PYTHONPATH": str(ROOT / "python"), "PYTHONUNBUFFERED": "1"}
# Inductor would start processes that each import torch: to compile what comes one at a time, and to see what
# instructions the processor has. It makes plain loops.
COMPILE_ENV = {**PYTHON_ENV, "TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "0"}
# XLA compiles thousands of small programs that run once: its own loops need not be fast. (An XLA that does not know a
# flag ends the process; this one is as old as XLA.)
JAX_ENV = {**PYTHON_ENV, "XLA_FLAGS": "--xla_backend_optimization_level=0"}


def ctest(folder: str, *options: str) -> list[str]:
    return ["ctest", "--test-dir", folder, "--output-on-failure", "-j2", *options]


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


# Unit tests in which nothing runs beside anything else.
UNTHREADED = "test_contract|test_rule|test_sample|test_unpack|test_vec_math|test_fuse_(cuda|grad|parse)"


def no_tsan() -> str | None:
    return "programs built with -fsanitize=thread do not start on this kernel" if tsan_runner() is None else None


def needs(*packages: str) -> Callable[[], str | None]:
    """Why a part that needs these packages cannot run."""

    def missing() -> str | None:
        for name in packages:
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None:  # a folder of that name is no package
                return f"there is no {name} for {sys.executable}"
        return None

    return missing


def operators() -> tuple[list[str], list[str]]:
    """Operators with kernels of their own, and formulas, which have theirs in common."""
    ops = ROOT / "src" / "ops"
    rows = "".join((ops / header).read_text() for header in ("list.h", "formulas.h"))
    names = re.findall(r"^    X\((\w+)", rows, re.MULTILINE)
    own = [name for name in names if (ops / f"{name.removesuffix('_grad')}.c").is_file()]
    return own, [name for name in names if name not in own]


def unlike() -> list[str]:
    """Operators that share no code."""
    own, _ = operators()
    return [*own, "rms_norm", "bias_act", "dropout", "adamw_step", "mse", "quantize", "fake_quantize"]


def parts() -> list[Part]:
    tsan = list(tsan_runner() or ())
    sanitizers = {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
    # Several run at a time, in this order: what takes longest begins first.
    return [
        Part("build", "build/tenon and build/libtenon.so", [["tools/build.sh", "release"]], vital=True),
        Part(
            "asan",
            "unit tests and check under AddressSanitizer and UBSan",
            [["tools/build.sh", "asan"], ctest("build/asan"), ["build/asan/tenon", "check", "--quick", *unlike()]],
            sanitizers,
        ),
        Part("python", "PyTorch: tests made from the operator table", [[*PYTEST, "tests/python"]], COMPILE_ENV),
        Part(
            "tsan",
            "unit tests and check under ThreadSanitizer",
            [
                ["tools/build.sh", "tsan"],
                [*tsan, *ctest("build/tsan", "-E", UNTHREADED)],
                [*tsan, "build/tsan/tenon", "check", "--quick", "--dtype", "f32", *unlike()],
            ],
            {"TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0", "TENON_NUM_THREADS": "4"},
            unable=no_tsan,
        ),
        Part("check", "every operator against float64, and its gradient", [["build/tenon", "check", "--quick"]]),
        Part("doctor", "tenon doctor names faults that are planted", [[*PYTEST, "tests/doctor"]]),
        Part("numpy", "NumPy: tests made from the operator table", [[*PYTEST, "tests/numpy"]], PYTHON_ENV),
        Part(
            "onnxruntime",
            "ONNX Runtime: tests made from the operator table",
            [[*PYTEST, "tests/onnxruntime"]],
            PYTHON_ENV,
            unable=needs("onnx", "onnxruntime", "ml_dtypes"),
        ),
        Part("jax", "JAX: tests made from the operator table", [[*PYTEST, "tests/jax"]], JAX_ENV, unable=needs("jax")),
        Part(
            "tensorflow",
            "TensorFlow: tests made from the operator table",
            [[str(TENSORFLOW), *PYTEST[1:], "tests/tensorflow"]],
            PYTHON_ENV,
            unable=lambda: None if TENSORFLOW.is_file() else "tools/setup.sh tensorflow makes its environment",
        ),
        Part(
            "together",
            "all frameworks in one process, and without some of them",
            [[*PYTEST, "tests/together"]],
            PYTHON_ENV,
        ),
        Part(
            "docs",
            "the documents, followed to the letter",
            [[*PYTEST, "tests/test_docs.py", "tests/test_layers.py", "tests/test_project.py"]],
            COMPILE_ENV,
        ),
        Part(
            "fuzz",
            "libFuzzer on the contract language and on formulas",
            [["tests/fuzz/run.sh", str(FUZZ_SECONDS // 2)]],
        ),
        Part("unit", "C unit tests of the core", [ctest("build")]),
        Part(
            "cubins",
            "every CUDA kernel compiled by NVRTC 12, for the oldest GPUs",
            [[str(ROOT / ".venv/bin/python"), "tools/release_cubins.py", "--arch", "ptx75"]],
        ),
        Part("wheel", "the wheel: made by pip, installed, used", [[*PYTEST, "tests/test_wheel.py"]]),
    ]


# Cases that look at the process as a whole, which compute-sanitizer is a part of, and what takes gigabytes.
UNTOOLED = "sticky,fork,idle,leaks,huge,repeat"
# initcheck takes memory of a pool for unwritten where several threads call, also in a program of nothing but a kernel
# that writes it and one that reads it (CUDA 13.0, thousands of reports). The other tools run this case.
UNTRACKED = "concurrent"
# What they find, and among how many processes their work is dealt out.
SANITIZERS = {
    "racecheck": ("races in shared memory", 5),
    "memcheck": ("accesses out of bounds, misaligned ones, leaks", 2),
    "synccheck": ("barriers that not all threads reach", 2),
    "initcheck": ("reads of memory that nobody wrote", 2),
}
# Among how many the tests of PyTorch and of JAX are.
PYTHON_PARTS, JAX_PARTS = 8, 2


def sanitizer() -> str | None:
    """compute-sanitizer, which comes with CUDA."""
    return shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")


def no_sanitizer() -> str | None:
    return None if sanitizer() else "there is no compute-sanitizer (it comes with the CUDA toolkit)"


def dealt(name: str, what: str, command: list[str], among: Sequence[str], n: int, env: Mapping[str, str]) -> list[Part]:
    """n parts that do the same, each for its share."""
    return [Part(f"{name}-{i + 1}", what, [[*command, *among[i::n]]], env) for i in range(n)]


def shared(part: Part, where: str, n: int, env: Mapping[str, str]) -> list[Part]:
    """A part that is pytest, in n parts."""
    (command,) = part.commands
    whole = replace(part, what=f"{where}: tests made from the operator table", env=env)
    deals = [(f"{part.name}-{i}", f"--deal={i}/{n}") for i in range(1, n + 1)]
    return [replace(whole, name=name, commands=[[*command, deal]]) for name, deal in deals]


def sanitized(tool: str, what: str, env: Mapping[str, str], n: int) -> list[Part]:
    """check --quick under a tool of compute-sanitizer, in n parts."""
    # racecheck looks at shared memory: operators that have none are not for it.
    among = [name for name in unlike() if tool != "racecheck" or name in (*operators()[0], "rms_norm", "mse")]
    skipped = f"{UNTOOLED},{UNTRACKED}" if tool == "initcheck" else UNTOOLED
    check = ["build/tenon", "check", "--device", "cuda", "--quick", "--dtype", "f32,bf16", "--skip", skipped]
    command = [sanitizer() or "", "--tool", tool, "--error-exitcode", "9", *check]
    made = dealt(tool, f"compute-sanitizer: {what}", command, among, n, env)
    return [replace(part, unable=no_sanitizer) for part in made]


def gpu_parts() -> list[Part]:
    """Those behind the build run beside each other, on one GPU and few threads each: the longest first."""
    names = {part.name: part for part in parts()}
    own, formulas = operators()
    few = {"TENON_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    check = ["build/tenon", "check", "--device", "cuda"]
    python = {**few, **PYTHON_ENV, "TENON_TEST_DEVICE": "cuda", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return [
        names["build"],
        *dealt("rows", "formulas on the GPU against float64, --quick", [*check, "--quick"], formulas, 8, few),
        *(part for tool, (what, n) in SANITIZERS.items() for part in sanitized(tool, what, few, n)),
        # All but tensors of gigabytes: two processes would each count on what is free.
        *dealt("check", "operators with kernels of their own, all cases", [*check, "--skip", "huge"], own, 5, few),
        *shared(names["python"], "PyTorch on CUDA", PYTHON_PARTS, python),
        *shared(names["jax"], "JAX on CUDA", JAX_PARTS, python),
        replace(names["together"], env=python),
        replace(names["numpy"], what="NumPy and CuPy", env=python),
        Part("huge", "more than 2^31 elements", [[*check, "--case", "huge", *unlike()]], few),
        names["unit"],
    ]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("parts", nargs="*", metavar="PART")
    arguments.add_argument("-v", "--verbose", action="store_true", help="show all output, not only that of failures")
    arguments.add_argument("--list", action="store_true", help="list the parts")
    arguments.add_argument("--gpu", action="store_true", help="the parts that a machine with a GPU is for")
    given = arguments.parse_args()
    if given.list:
        for part in gpu_parts() if given.gpu else parts():
            print(f"  {part.name:<11} {part.what}")
        return 0
    # Dozens of processes import a framework: all but the first find it compiled.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if given.gpu:
        print(f"Tests on the GPU, with {sys.executable}; logs in build/logs")
        return run_all(choose(gpu_parts(), given.parts), given.verbose, jobs=min(16, os.cpu_count() or 1))
    print(f"Tests, with {sys.executable}; logs in build/logs")
    return run_all(choose(parts(), given.parts), given.verbose, jobs=min(4, os.cpu_count() or 1))


if __name__ == "__main__":
    sys.exit(main())
