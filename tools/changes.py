"""Which GPU tests a change needs: the operators and the kinds of tests that a list of changed files reaches.

A file outside of src/ is known by its place (PLACES). A file of src/ is followed along the includes: where all that it
reaches are families of operators, these operators are tested. Whatever is unknown means everything.
"""

from __future__ import annotations

import posixpath
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from table import Table

WIRING = "src/tenon.c"  # includes the list of every family, to make one table of them
FRAMEWORKS = ("python", "jax", "numpy", "together", "lessons")

# (places, the kinds of GPU tests that read what is there). The first match counts.
PLACES: list[tuple[str, tuple[str, ...]]] = [
    (r".*\.md|docs/.*|LICENSE|\.github/.*|\.git(ignore|attributes)|\.editorconfig|\.pre-commit-config\.yaml", ()),
    (r"\.clang-(format|tidy)|tools/(lint|make_wheel|check_glibc|follow_doc|commit_message)\.py|tools/compat.*", ()),
    (r"examples/kernels/.*\.py|tests/test_examples_kernels\.py", ("lessons",)),
    (r"tests/(cli|doctor|fuzz|onnxruntime|tensorflow|tools)/.*|tests/test_\w+\.(py|c)", ()),
    (r"tests/python/.*|examples/torch/.*|adapters/torch/.*|python/tenon/torch/.*", ("python", "together")),
    (r"tests/jax/.*|examples/jax/.*|adapters/jax/.*|python/tenon/jax/.*", ("jax", "together")),
    (r"tests/numpy/.*", ("numpy",)),
    (r"tests/together/.*", ("together",)),
    (r"(adapters|examples|python/tenon)/(tensorflow|onnxruntime)/.*", ("together",)),
    (r"python/.*|bench/\w+\.py|examples/.*|tests/shared/.*|tests/conftest\.py", FRAMEWORKS),
    (r"bench/results/.*", ()),
    (r"tests/(core|cpu|cuda|fuse|ops|plugins)/.*|tests/\w+\.h", ("unit",)),
]


@dataclass(frozen=True)
class Selection:
    """All tests of some kinds, and the tests of some operators in every kind. None: all of them."""

    kinds: frozenset[str] | None = None
    ops: frozenset[str] | None = None


EVERYTHING = Selection()


# ---- sources -------------------------------------------------------------------------------------------------------


class Sources:
    """The C and CUDA files of a tree, and who includes whom."""

    def __init__(self, root: Path) -> None:
        folders = ("src", "include", "cli", "adapters", "tools")
        paths = [p for folder in folders for p in (root / folder).rglob("*") if p.suffix in (".c", ".h", ".cu", ".cuh")]
        self.texts = {p.relative_to(root).as_posix(): p.read_text() for p in paths}
        self.includers: dict[str, set[str]] = {name: set() for name in self.texts}
        for name, text in self.texts.items():
            for included in re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', text, re.MULTILINE):
                for found in self.named(included, name):
                    self.includers[found].add(name)

    def named(self, included: str, includer: str) -> list[str]:
        """The files that an #include may mean: the one beside the includer, or all whose path ends with it."""
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(includer), included))
        if beside in self.texts:
            return [beside]
        return [name for name in self.texts if f"/{name}".endswith(f"/{included}")]

    def reached(self, names: Iterable[str]) -> set[str]:
        """These files and all that include them, directly or not."""
        reached, todo = set(), list(names)
        while todo:
            name = todo.pop()
            if name not in reached:
                reached.add(name)
                todo += self.includers.get(name, ())
        return reached

    def family(self, name: str) -> str | None:
        """The folder src/ops/FAMILY/ that a file lies in."""
        found = re.match(r"src/ops/\w+/", name)
        return found[0] if found else None

    def operators(self, family: str, table: Table) -> frozenset[str]:
        """The operators whose signatures are in the files of a family: "NAME(x: T…", or what MACRO(NAME, …) makes."""
        texts = [text for name, text in self.texts.items() if name.startswith(family)]
        signatures = r'"(\w+)\([^()":]*:|\b[A-Z_]+\((\w+),'
        found = {name for text in texts for pair in re.findall(signatures, text) for name in pair}
        return frozenset(found & set(table.names))


def touched_operators(path: str, sources: Sources, table: Table) -> frozenset[str] | None:
    """The operators that a file of src/ or include/ reaches; None where it reaches more than operators."""
    family = sources.family(path)
    # A function may be declared in any header of its family: who includes one may call what has changed.
    changed = [path, *(n for n in sources.texts if family and n.startswith(family) and n.endswith((".h", ".cuh")))]
    reached = {name for name in sources.reached(changed) if name.endswith((".c", ".cu"))} - {WIRING} | {path}
    families = {sources.family(name) for name in reached if name != path or family or not name.endswith((".h", ".cuh"))}
    if not families or None in families:
        return None
    # A family without operators is what others are made of, and they include it.
    return frozenset().union(*(sources.operators(name, table) for name in families if name)) or None


# ---- changes -------------------------------------------------------------------------------------------------------


def select(paths: Iterable[str], root: Path, table: Table) -> Selection:
    """What a change of these files needs."""
    kinds: set[str] = set()
    ops: set[str] = set()
    sources: Sources | None = None
    for path in paths:
        place = next((known for pattern, known in PLACES if re.fullmatch(pattern, path)), None)
        if place is not None:
            kinds.update(place)
            continue
        if not path.startswith("src/"):
            return EVERYTHING
        sources = sources or Sources(root)
        found = touched_operators(path, sources, table)
        if found is None:
            return EVERYTHING
        ops |= found
    return Selection(frozenset(kinds), table.with_callers(table.with_gradients(ops)))


def changed_files(commit: str, root: Path) -> list[str]:
    """The files that differ from those of a commit; new ones too."""
    lists = (["diff", "--name-only", "--no-renames", commit], ["ls-files", "--others", "--exclude-standard"])
    names: list[str] = []
    for arguments in lists:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"CHANGED={commit}: git cannot compare with it: {done.stderr.strip()}")
        names += done.stdout.splitlines()
    return names
