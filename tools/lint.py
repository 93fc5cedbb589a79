"""Everything that is judged without running it:  tools/lint.py [-v] [PART …]   tools/lint.py --fix

`make lint` and `make format`; they set up what it needs. Runs with the Python of .venv, which has the pinned tools.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from parts import ROOT, Part, choose, run_all

BIN = Path(sys.executable).parent

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


def warnings(compiler: str) -> Part:
    folder = f"build/lint-{compiler}"
    configure = ["cmake", "-S", ".", "-B", folder, "-G", "Ninja", f"-DCMAKE_C_COMPILER={compiler}", "-DTENON_WERROR=ON"]
    configure += ["-DTENON_CUBINS=build/cubins", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1"]
    return Part(compiler, f"no warning from {compiler}", [configure, ["cmake", "--build", folder, "--", "-k", "0"]])


def headers() -> Part:
    """Each installed header alone, as C11 and as C++17, without one word from the compiler."""
    found = [f for f in tracked(".h") if f.startswith("include/")] + ["build/lint-gcc/include/tenon/ops.h"]
    common = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Iinclude", "-Ibuild/lint-gcc/include"]
    commands = []
    for header in found:
        commands.append(["cc", "-std=c11", "-x", "c", *common, header])
        commands.append(["c++", "-std=c++17", "-x", "c++", *common, header])
    return Part("headers", "each installed header alone, as C11 and as C++17", commands)


def tidy() -> Part:
    sources = [f for f in tracked(".c") if f.startswith(("src/", "cli/", "adapters/")) and not f.endswith("_cpu.c")]
    arguments = ["-n", "4", "-P", str(os.cpu_count() or 1), "clang-tidy", "--quiet", "-p", "build/lint-clang"]
    command = ["sh", "-c", f"printf '%s\\n' \"$@\" | xargs {' '.join(arguments)}", "sh", *sources]
    return Part("tidy", "clang-tidy with the checks of .clang-tidy", [command])


def github() -> Part:
    """What GitHub reads, against the schemas that check-jsonschema brings."""
    forms = [f for f in tracked(".yml") if f.startswith(".github/ISSUE_TEMPLATE/")]
    schemas = {
        "github-workflows": [f for f in tracked(".yml") if f.startswith(".github/workflows/")],
        "github-issue-forms": [f for f in forms if not f.endswith("/config.yml")],
        "github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
        "dependabot": [".github/dependabot.yml"],
    }
    check = [f"{BIN}/check-jsonschema", "--builtin-schema"]
    return Part(
        "github", "workflows and forms", [[*check, f"vendor.{name}", *files] for name, files in schemas.items()]
    )


def parts() -> list[Part]:
    with_torch = (ROOT / "build" / "python").read_text().strip() if (ROOT / "build" / "python").is_file() else ""
    interpreter = [f"--python-executable={with_torch}"] if with_torch else []
    return [
        Part("format", "clang-format", [[f"{BIN}/clang-format", "--dry-run", "-Werror", *tracked(*FORMATTED)]]),
        Part("ruff", "ruff: Python rules and form", [[f"{BIN}/ruff", "check"], [f"{BIN}/ruff", "format", "--check"]]),
        Part(
            "mypy",
            "mypy --strict on python/tenon",
            [[sys.executable, "tools/stubs.py"], [f"{BIN}/mypy", *interpreter, "python/tenon"]],
        ),
        github(),
        warnings("gcc"),
        warnings("clang"),
        tidy(),
        headers(),
    ]


def fix() -> int:
    commands = [
        [f"{BIN}/clang-format", "-i", *tracked(*FORMATTED)],
        [f"{BIN}/ruff", "check", "--fix", "--quiet"],
        [f"{BIN}/ruff", "format", "--quiet"],
    ]
    return max(subprocess.run(command, cwd=ROOT).returncode for command in commands)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("parts", nargs="*", metavar="PART")
    arguments.add_argument("-v", "--verbose", action="store_true", help="show all output, not only that of failures")
    arguments.add_argument("--fix", action="store_true", help="write the formatting instead of judging it")
    given = arguments.parse_args()
    return fix() if given.fix else run_all(choose(parts(), given.parts), given.verbose)


if __name__ == "__main__":
    sys.exit(main())
