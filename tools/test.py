"""The tests of Tenon, in parts:  tools/test.py [-v] [PART …]   (no part: all of them;  --list says what there is)

Run by `make test`, `make test-quick` and `make test-gpu`, which set up what it needs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from parts import ROOT, Part, choose, run_all

FUZZ_SECONDS = 45
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
PYTHON_ENV = {"PYTHONPATH": str(ROOT / "python"), "PYTHONUNBUFFERED": "1"}


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


def no_tsan() -> str | None:
    return "programs built with -fsanitize=thread do not start on this kernel" if tsan_runner() is None else None


def parts() -> list[Part]:
    tsan = list(tsan_runner() or ())
    sanitizers = {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
    return [
        Part("build", "build/tenon and build/libtenon.so", [["tools/build.sh", "release"]], vital=True),
        Part("unit", "C unit tests of the core", [ctest("build")]),
        Part("check", "every operator against float64, and its gradient", [["build/tenon", "check", "--quick"]]),
        Part("python", "PyTorch: tests made from the operator table", [[*PYTEST, "tests/python"]], PYTHON_ENV),
        Part("docs", "the documents, followed to the letter", [[*PYTEST, "tests/test_docs.py"]], PYTHON_ENV),
        Part(
            "asan",
            "unit tests and check under AddressSanitizer and UBSan",
            [["tools/build.sh", "asan"], ctest("build/asan"), ["build/asan/tenon", "check", "--quick"]],
            sanitizers,
        ),
        Part(
            "tsan",
            "unit tests and check under ThreadSanitizer",
            [
                ["tools/build.sh", "tsan"],
                [*tsan, *ctest("build/tsan")],
                [*tsan, "build/tsan/tenon", "check", "--quick", "--dtype", "f32"],
            ],
            {"TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0", "TENON_NUM_THREADS": "4"},
            unable=no_tsan,
        ),
        Part("fuzz", "libFuzzer on the contract language", [["tests/fuzz/run.sh", str(FUZZ_SECONDS)]]),
    ]


def gpu_parts() -> list[Part]:
    names = {part.name: part for part in parts()}
    return [names["build"], names["check"], names["python"]]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("parts", nargs="*", metavar="PART")
    arguments.add_argument("-v", "--verbose", action="store_true", help="show all output, not only that of failures")
    arguments.add_argument("--list", action="store_true", help="list the parts")
    arguments.add_argument("--gpu", action="store_true", help="the parts that a machine with a GPU is for")
    given = arguments.parse_args()
    if given.list:
        for part in parts():
            print(f"  {part.name:<8} {part.what}")
        return 0
    if given.gpu:
        print("This version has no CUDA kernels: on this machine the CPU kernels and the PyTorch adapter are tested.")
        return run_all(gpu_parts(), given.verbose)
    print(f"Tests, with {sys.executable}; logs in build/logs")
    return run_all(choose(parts(), given.parts), given.verbose)


if __name__ == "__main__":
    sys.exit(main())
