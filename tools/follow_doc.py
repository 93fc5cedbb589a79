"""Does what a document says:  tools/follow_doc.py docs/adding-an-operator.md [--tree FOLDER]

Works in a fresh copy of the project, or in --tree. The first line of a code block says what the block is for:

    ```c file=src/ops/norm/center.c       the block is this file
    ```diff file=src/ops/list.h      lines with + go behind the line that has the space
    ```diff file=… adds=operator     the same; the file is one of those that it takes to add an operator
    ```console                       commands behind $; what they print must show the lines below, where … is anything
    ```console needs=nvcc            the same, left out where there is no such program
    ```python needs=torch            a program, left out where the package (needs=jax,optax: one of them) is missing

`at=plugin` does it in the folder plugin/ beside the copy, which gets each file of the document too. $TENON is the
project itself, unchanged. Other blocks are only to be read.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Block:
    document: str
    line: int
    language: str
    options: dict[str, str]
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


class Wrong(Exception):
    """The document does not work as it says."""


def blocks(document: Path) -> list[Block]:
    found: list[Block] = []
    lines = document.read_text().splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
            continue
        words = lines[start][3:].split()
        options = dict(word.split("=", 1) for word in words[1:])
        text = "\n".join(lines[start + 1 : number]) + "\n"
        found.append(Block(document.name, start + 1, words[0] if words else "", options, text))
        start = None
    return found


def copy_tree(to: Path) -> None:
    """The files of the project, new ones too, without what git ignores."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:  # an unpacked archive
        skip = shutil.ignore_patterns("build*", ".venv*", ".git", "__pycache__")
        shutil.copytree(ROOT, to, ignore=skip, dirs_exist_ok=True)
        return
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def insert(path: Path, block: Block) -> None:
    """Puts the lines with + behind the line that comes before them in the block."""
    lines = path.read_text().splitlines()
    at = -1
    for line in block.text.splitlines():
        if line.startswith("+"):
            if at < 0:
                raise Wrong(f"{block}: + needs a line before it to go behind")
            at += 1
            lines.insert(at, line[1:])
        else:
            words = line[1:].split()
            same = [n for n, have in enumerate(lines) if have.split() == words]
            if len(same) != 1:
                raise Wrong(f"{block}: '{line[1:]}' is {len(same)} times in {path.name}")
            at = same[0]
    path.write_text("\n".join(lines) + "\n")


def expected(line: str) -> str:
    """The regular expression of a shown line: … is anything, a number is any number, spaces may be more."""
    if line.strip() == "0 failed":  # of a line 'N passed, 0 failed'
        return r"\d+ passed, 0 failed.*"
    pattern = ".*".join(re.escape(piece) for piece in line.strip().split("…"))
    return re.sub(r"(\\ )+", r"\\s+", pattern)


def run_console(block: Block, folder: Path, env: dict[str, str]) -> None:
    command, shown = None, []
    for line in [*block.text.splitlines(), "$ "]:
        if not line.startswith("$ "):
            shown.append(line)
            continue
        if command is not None:
            run_command(block, command, shown, folder, env)
        command, shown = line[2:], []


def run_command(block: Block, command: str, shown: list[str], folder: Path, env: dict[str, str]) -> None:
    print(f"  $ {command}", flush=True)
    done = subprocess.run(
        command, shell=True, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode != 0:
        raise Wrong(f"{block}: '{command}' ended with {done.returncode}:\n{done.stdout}")
    rest = done.stdout.splitlines()
    for line in shown:
        if line.strip() in ("", "…"):
            continue
        match = next((n for n, have in enumerate(rest) if re.fullmatch(expected(line), have.strip())), None)
        if match is None:
            raise Wrong(f"{block}: '{command}' does not print '{line}' but:\n{done.stdout}")
        rest = rest[match + 1 :]


def is_installed(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None  # a folder of that name is no package


# Importing a framework takes seconds. It is done once, by a process that every program is then a fork of.
FORKS = multiprocessing.get_context("forkserver")


def become(program: Path, arguments: list[str], folder: Path, env: dict[str, str], output: Path) -> None:
    """In a process of its own: `python program arguments`, in the folder."""
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    installed = [p for p in sys.path if p.startswith(sys.prefix) or not Path(p).resolve().is_relative_to(ROOT)]
    sys.path[:] = [str(program.parent), *env["PYTHONPATH"].split(os.pathsep), *installed]
    sys.argv = [str(program), *arguments]
    runpy.run_path(str(program), run_name="__main__")


def run_program(
    program: Path, folder: Path, env: dict[str, str], needs: list[str], arguments: list[str] | None = None
) -> tuple[int | None, str]:
    """How the program ended (None: not within 10 minutes), and what it printed. What the first one needs is imported
    for all."""
    FORKS.set_forkserver_preload(needs)
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "output"
        process = FORKS.Process(target=become, args=(program, arguments or [], folder, env, output))
        process.start()
        process.join(600)
        process.kill()
        return process.exitcode, output.read_text(errors="replace") if output.exists() else ""


def run_python(block: Block, folder: Path, env: dict[str, str]) -> None:
    needs = list(filter(None, block.options.get("needs", "").split(",")))
    missing = [name for name in needs if not is_installed(name)]
    if missing:
        print(f"  left out: {block} needs {missing[0]}")
        return
    print(f"  python: {block}", flush=True)
    program = folder / f"line_{block.line}.py"
    program.write_text(block.text)
    status, output = run_program(program, folder, env, needs)
    if status != 0:
        raise Wrong(f"{block}: the program failed:\n{output}")


def touched(document: Path) -> dict[str, list[str]]:
    """What the document adds, and the files of the project that it touches for it."""
    files: dict[str, list[str]] = {}
    for block in blocks(document):
        name, thing = block.options.get("file", ""), block.options.get("adds")
        if name.startswith("src/") and thing is None:
            raise Wrong(f"{block}: {name} is changed, but adds=… does not say for what")
        if thing is not None and name not in files.setdefault(thing, []):
            files[thing].append(name)
    return files


def follow(document: Path, tree: Path, beside: Path) -> None:
    beside.mkdir(parents=True, exist_ok=True)
    for block in blocks(document):
        folder, project = (beside, ROOT) if block.options.get("at") == "plugin" else (tree, tree)
        env = {**os.environ, "PYTHONPATH": str(project / "python"), "TENON": str(ROOT)}
        env["TENON_CUDA_ARCHS"] = "none"  # what is followed needs no GPU
        env["PATH"] = f"{project / 'build'}{os.pathsep}{env['PATH']}"  # `tenon`, as an installed one is called
        name = block.options.get("file")
        if name and block.language == "diff":
            print(f"  edit {name}")
            insert(folder / name, block)
        elif name:
            print(f"  write {name}")
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(block.text)
            (beside / Path(name).name).write_text(block.text)
        elif block.language == "console":
            needed = block.options.get("needs")
            if needed and not shutil.which(needed):
                print(f"  left out: {block} needs {needed}")
                continue
            run_console(block, folder, env)
        elif block.language == "python":
            run_python(block, folder, env)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("document", type=Path)
    arguments.add_argument("--tree", type=Path, help="work here instead of in a copy")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="tenon-doc-") as folder:
        tree = given.tree or Path(folder) / "tenon"
        tree.mkdir(exist_ok=True)
        if given.tree is None:
            copy_tree(tree)
        try:
            follow(given.document, tree.resolve(), Path(folder) / "plugin")
        except Wrong as wrong:
            print(wrong, file=sys.stderr)
            return 1
    for thing, files in touched(given.document).items():
        print(f"{thing}: {len(files)} file{'s' * (len(files) != 1)} ({', '.join(files)})")
    print(f"{given.document.name} works as it says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
