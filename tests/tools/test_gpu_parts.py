"""Which GPU tests `make test-gpu` runs: by operator, by change, by share. Needs no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import changes
import gpu_parts
import table
from changes import EVERYTHING, Selection

ROOT = Path(__file__).resolve().parents[2]
TABLE = table.read()


def names(kind: str, work: list[gpu_parts.Unit]) -> set[str]:
    return {unit.name for unit in work if unit.kind == kind}


def count_operators(parts: list[gpu_parts.Part], kind: str) -> Counter[str]:
    """How often the parts' commands name each operator."""
    commands = [part.commands for part in parts if part.name.partition("-")[0] == kind]
    words = [word for command in commands if not callable(command) for word in command[0]]
    return Counter(word for word in words if word in TABLE.names)


# ---- the table -----------------------------------------------------------------------------------------------------


def test_the_table_is_the_library_s() -> None:
    listed = subprocess.run([table.TENON, "ops", "--json"], check=True, capture_output=True, text=True)
    assert sorted(TABLE.names) == sorted(op["name"] for op in json.loads(listed.stdout))
    assert "softmax" in TABLE.own and "gelu" in TABLE.formulas
    assert set(TABLE.unlike) == {*TABLE.own, *table.UNLIKE_FORMULAS}


def test_gradients_and_callers() -> None:
    assert TABLE.with_gradients(["softmax", "gelu"]) == {"softmax", "softmax_grad", "gelu"}
    assert TABLE.with_callers(["layer_norm_grad"]) >= {"layer_norm", "layer_norm_grad"}


# ---- units and parts -----------------------------------------------------------------------------------------------


def test_everything_tests_the_whole_table_once() -> None:
    parts = gpu_parts.parts(gpu_parts.units(TABLE))
    assert count_operators(parts, "rows") == Counter(TABLE.formulas)
    assert count_operators(parts, "check") == Counter(TABLE.own)
    assert count_operators(parts, "memcheck") == Counter(TABLE.unlike)
    some = {"python-1", "python-8", "jax-4", "together-1", "numpy-1", "huge-1", "unit", "lessons-8"}
    assert {part.name for part in parts} >= some
    assert [part.seconds for part in parts] == sorted((part.seconds for part in parts), reverse=True)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_shares_have_everything_once_and_are_equally_long(n: int) -> None:
    work = gpu_parts.units(TABLE)
    shares = [gpu_parts.part_of(work, f"{i}/{n}") for i in range(1, n + 1)]
    assert Counter(unit for share in shares for unit in share) == Counter(work)
    taken = [sum(unit.seconds for unit in share) for share in shares]
    assert max(taken) < 1.03 * min(taken)
    for kind in gpu_parts.by_operator():  # also as commands
        counts = [count_operators(gpu_parts.parts(share), kind) for share in shares]
        assert sum(counts, Counter()) == count_operators(gpu_parts.parts(work), kind)


@pytest.mark.parametrize("part", ["", "0/3", "4/3", "3", "1/0", "a/b", "-1/3"])
def test_a_part_that_is_none(part: str) -> None:
    with pytest.raises(SystemExit, match="is not like 1/3"):
        gpu_parts.part_of([], part)


def test_an_operator_that_nobody_measured_has_average_length() -> None:
    known = list(gpu_parts.measured()["rows"].values())
    assert gpu_parts.seconds("rows", "not_measured_yet") == pytest.approx(sum(known) / len(known))
    assert set(gpu_parts.measured()) == {*gpu_parts.by_operator(), *gpu_parts.FRAMEWORKS, "unit", "lessons"}


def test_some_operators() -> None:
    work = gpu_parts.units(TABLE, Selection(frozenset(), frozenset({"softmax", "gelu"})))
    assert names("check", work) == names("racecheck", work) == names("huge", work) == {"softmax"}
    assert names("rows", work) == {"gelu"}
    assert names("python", work) == names("jax", work) == {"1/1"}
    assert not names("unit", work) and not names("together", work)
    python = next(p for p in gpu_parts.parts(work, Selection(frozenset(), frozenset({"gelu"}))) if p.name == "python-1")
    assert not callable(python.commands) and python.commands[0][-1] == "--ops=gelu"


def test_a_kind_as_a_whole_beside_an_operator() -> None:
    chosen = Selection(frozenset({"jax"}), frozenset({"softmax"}))
    parts = {part.name: part.commands for part in gpu_parts.parts(gpu_parts.units(TABLE, chosen), chosen)}
    assert not any("--ops" in word for word in parts["jax-1"][0]) and "jax-2" in parts  # type: ignore[index]
    assert parts["python-1"][0][-1] == "--ops=softmax"  # type: ignore[index]


def test_the_command_lists_what_would_run() -> None:
    command = [sys.executable, ROOT / "tools" / "test.py", "--gpu", "--list"]
    done = subprocess.run([*command, "--ops", "softmax", "--part", "1/2"], capture_output=True, text=True)
    assert done.returncode == 0 and "check-1" in done.stdout and " s of work" in done.stdout
    done = subprocess.run([*command, "--ops", "sotfmax"], capture_output=True, text=True)
    assert done.returncode != 0 and "there is no operator 'sotfmax'" in done.stderr


# ---- changes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paths", "kinds"),
    [
        ([], set()),
        (["README.md", "docs/formulas.md", ".github/workflows/ci.yml", "bench/results/h200.json"], set()),
        (["tests/tensorflow/test_grad.py", "tests/test_docs.py", "tests/tools/test_gpu_parts.py"], set()),
        (["tests/python/test_grad.py"], {"python", "together"}),
        (["adapters/jax/jax.c"], {"jax", "together"}),
        (["tests/fuse/cuda/test_fuse_cuda.c", "tests/numpy/gpu.py"], {"unit", "numpy"}),
        (["python/tenon/_rules.py"], {"python", "jax", "numpy", "together", "lessons"}),
        (["tests/shared/samples.py"], {"python", "jax", "numpy", "together", "lessons"}),
        (["examples/kernels/relu/relu.py", "examples/kernels/relu/README.md"], {"lessons"}),
    ],
)
def test_a_change_outside_of_the_sources(paths: list[str], kinds: set[str]) -> None:
    assert changes.select(paths, ROOT, TABLE) == Selection(frozenset(kinds), frozenset())


@pytest.mark.parametrize(
    "path",
    [
        "CMakeLists.txt",
        "Makefile",
        "tools/test.py",
        "cli/check/cmd_check.c",
        "include/tenon/op.h",
        "src/ops/list.h",
        "src/tenon.c",
        "src/core/run/dispatch.c",
        "src/cuda/driver/cuda.h",
        "src/fuse/fuse.c",
        "src/gone_for_good.c",
        "something/new.xyz",
    ],
)
def test_what_reaches_far_or_is_unknown_means_everything(path: str) -> None:
    assert changes.select(["README.md", path], ROOT, TABLE) == EVERYTHING


def family(name: str) -> frozenset[str]:
    return changes.Sources(ROOT).operators(f"src/ops/{name}/", TABLE)


def test_every_operator_has_a_family() -> None:
    """Or changes.py no longer finds the operators that a change touches."""
    families = {path.name for path in (ROOT / "src" / "ops").iterdir() if path.is_dir()}
    assert frozenset().union(*(family(name) for name in families)) == {*TABLE.names}
    assert {name for name in families if not family(name)} == {"lookup"}


def test_what_families_are_made_of_means_those_families() -> None:
    chosen = changes.select(["src/ops/lookup/lookup_add.cu"], ROOT, TABLE)
    assert chosen.ops is not None
    assert {"embedding", "scatter_add", "segment_sum"} <= chosen.ops and "softmax" not in chosen.ops


@pytest.mark.parametrize("file", ["softmax.c", "softmax.cu", "softmax_cpu.c", "softmax.h"])
def test_a_file_of_a_family_means_its_operators(file: str) -> None:
    chosen = changes.select([f"src/ops/softmax/{file}"], ROOT, TABLE)
    assert chosen.kinds == frozenset() and chosen.ops is not None
    assert {"softmax", "softmax_grad"} <= chosen.ops and "batch_norm" not in chosen.ops


def test_a_formula_means_the_formulas() -> None:
    chosen = changes.select(["src/ops/formulas/gates.c"], ROOT, TABLE)
    assert chosen.ops is not None and {"swiglu", "geglu"} <= chosen.ops <= TABLE.with_callers(TABLE.formulas)
    assert "softmax" not in chosen.ops


def test_families_and_frameworks_add_up() -> None:
    chosen = changes.select(["src/ops/softmax/softmax.cu", "src/ops/norm/layer_norm.cu", "tests/jax/x.py"], ROOT, TABLE)
    assert chosen.kinds == {"jax", "together"} and chosen.ops is not None
    assert chosen.ops >= family("softmax") | family("norm")


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_headers_reach_whoever_includes_them(tmp_path: Path) -> None:
    known = table.Table(("a", "a_grad", "b", "c"), (), {n: frozenset() for n in "abc"} | {"a_grad": frozenset()})
    root = tree(
        tmp_path,
        {
            "src/ops/one/a.c": '#include "a.h"\n"a(x: T[*s])", "a_grad(dy: T[*s])"',
            "src/ops/one/a.h": "",
            "src/ops/two/b.cu": '#include "device/rows.cuh"\n',
            "src/ops/two/b.c": '#include "../one/a.h"\n"b(x: T[*s])"',
            "src/ops/three/c.c": '"c(x: T[*s])"',
            "src/ops/list.h": "",
            "src/cuda/device/rows.cuh": '#include "vector.cuh"\n',
            "src/cuda/device/vector.cuh": "",
            "src/core/run.c": '#include "core/run.h"\n',
            "src/core/run.h": "",
            "src/cuda/device/alone.cuh": "",
            "src/tenon.c": '#include "ops/one/a.h"\n',
        },
    )

    def ops(path: str) -> frozenset[str] | None:
        return changes.select([path], root, known).ops

    assert ops("src/ops/one/a.c") == ops("src/ops/one/a.h") == {"a", "a_grad", "b"}  # b may call what a.h declares
    assert ops("src/ops/two/b.cu") == {"b"}
    assert ops("src/ops/three/c.c") == {"c"}
    assert ops("src/cuda/device/vector.cuh") == {"b"}  # by way of rows.cuh
    assert ops("src/ops/three/removed.cu") == {"c"}
    assert ops("src/core/run.h") is None and ops("src/tenon.c") is None
    assert ops("src/cuda/device/alone.cuh") is None  # nobody includes it: who knows
    assert ops("src/ops/four/removed.c") is None


def test_files_that_changed_since_a_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *arguments], cwd=tree(tmp_path, {}), check=True, capture_output=True)

    git("init")
    tree(tmp_path, {"kept.c": "1", "edited.c": "1", "moved.c": "123", ".gitignore": "build/\n"})
    git("add", ".")
    git("commit", "-m", "first")
    git("mv", "moved.c", "new_name.c")
    tree(tmp_path, {"edited.c": "2", "untracked.c": "", "build/ignored.c": ""})
    assert set(changes.changed_files("HEAD", tmp_path)) == {"edited.c", "moved.c", "new_name.c", "untracked.c"}
    with pytest.raises(SystemExit, match="CHANGED=nothing: git cannot compare"):
        changes.changed_files("nothing", tmp_path)
