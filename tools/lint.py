"""What is judged without running it: parts of tools/test.py (`make lint`), and `tools/lint.py --fix` (`make format`).

The pinned tools are in .venv (tools/setup.sh lint). Warnings of gcc and clang are errors of the builds themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys

from parts import ROOT, Part

BIN = ROOT / ".venv" / "bin"
FORMATTED = (".c", ".h", ".cu", ".cuh")


def tracked(*endings: str) -> list[str]:
    """The files of the project, new ones too; what git ignores is left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        names = listed.stdout.splitlines()
    else:  # an unpacked archive
        hidden = {"build", ".venv", ".git"}
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if not hidden & set(p.relative_to(ROOT).parts)]
    return sorted(n for n in names if n.endswith(endings) and (ROOT / n).is_file())


def header_commands() -> list[list[str]]:
    """Each installed header alone, as C11 and as C++17, without one word from the compiler."""
    found = [*(f for f in tracked(".h") if f.startswith("include/")), "build/include/tenon/ops.h"]
    common = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Iinclude", "-Ibuild/include"]
    as_c, as_cxx = ["cc", "-std=c11", "-x", "c", *common], ["c++", "-std=c++17", "-x", "c++", *common]
    return [[*command, header] for header in found for command in (as_c, as_cxx)]


def tidy_command() -> list[str]:
    """Sources that the build with clang compiles: src/glibc is for builds without sanitizers."""
    others = ("_cpu.c", "src/glibc/start.c", "src/glibc/stat.c")
    sources = [f for f in tracked(".c") if f.startswith(("src/", "cli/", "adapters/")) and not f.endswith(others)]
    arguments = ["-n", "4", "-P", str(os.cpu_count() or 1), "clang-tidy", "--quiet", "-p", "build/asan"]
    return ["sh", "-c", f"printf '%s\\n' \"$@\" | xargs {' '.join(arguments)}", "sh", *sources]


def github_commands() -> list[list[str]]:
    """What GitHub reads, against the schemas that check-jsonschema brings."""
    forms = [f for f in tracked(".yml") if f.startswith(".github/ISSUE_TEMPLATE/")]
    schemas = {
        "github-workflows": [f for f in tracked(".yml") if f.startswith(".github/workflows/")],
        "github-issue-forms": [f for f in forms if not f.endswith("/config.yml")],
        "github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
        "dependabot": [".github/dependabot.yml"],
    }
    check = [f"{BIN}/check-jsonschema", "--builtin-schema"]
    return [[*check, f"vendor.{name}", *files] for name, files in schemas.items()]


def parts() -> list[Part]:
    file = ROOT / "build" / "python"
    with_torch = [f"--python-executable={file.read_text().strip()}"] if file.is_file() else []
    format_command = [f"{BIN}/clang-format", "--dry-run", "-Werror", *tracked(*FORMATTED)]
    ruff = [[f"{BIN}/ruff", "check"], [f"{BIN}/ruff", "format", "--check"]]
    return [
        Part("lint-format", "clang-format", [format_command], seconds=5),
        Part("lint-ruff", "ruff: Python rules and form", ruff, seconds=1),
        Part(
            "lint-mypy",
            "mypy --strict on python/tenon",
            [[f"{BIN}/mypy", *with_torch, "python/tenon"]],
            needs=["build"],  # it writes the stubs
            seconds=30,
        ),
        Part("lint-github", "workflows and forms", github_commands(), seconds=3),
        Part(
            "lint-tidy", "clang-tidy with the checks of .clang-tidy", [tidy_command()], needs=["asan-build"], seconds=60
        ),
        Part(
            "lint-headers",
            "each installed header alone, as C11 and as C++17",
            header_commands,
            needs=["build"],
            seconds=3,
        ),
    ]


def fix() -> int:
    commands = [
        [f"{BIN}/clang-format", "-i", *tracked(*FORMATTED)],
        [f"{BIN}/ruff", "check", "--fix", "--quiet"],
        [f"{BIN}/ruff", "format", "--quiet"],
    ]
    return max(subprocess.run(command, cwd=ROOT).returncode for command in commands)


if __name__ == "__main__":
    if sys.argv[1:] != ["--fix"]:
        sys.exit("tools/lint.py --fix writes the form; `make lint` judges it")
    sys.exit(fix())
