"""The command: what `tenon help` shows runs, and a reader that has seen enough is no error."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import follow_doc  # noqa: E402

VERBS = ("ops", "check", "bench", "tune", "fuse", "new", "build", "watch", "devices", "doctor", "flags")
# What examples are given in addition so that they take a moment.
BRIEF = {"check": "--quick --case values,empty --dtype f32", "bench": "--ms 1", "fuse": "--no-bench"}
ENDED = "timeout --preserve-status -s INT 2 tenon watch"  # which ends by Ctrl-C
OWN = {
    "--kernel neon": "--kernel ref",  # the other is of another processor
    "layer_norm --threads 1": 'layer_norm --threads 1 --shape "r=[64] c=64"',
    "[4096, 1024]": "[64, 100]",
    "[4096, 11008]": "[64, 100]",
}  # large ones take their time


def tenon(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "build/tenon", *words], text=True, capture_output=True, timeout=120)


def examples(verb: str) -> list[str]:
    """Lines of a help text before its options, without what is said of them."""
    above = tenon("help", verb).stdout.partition("\n\n")[2].partition("\n\n")[0]
    return [re.split(r"\s{2,}", line.strip())[0] for line in above.splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the examples call: a program, an operator of one's own."""
    folder = tmp_path_factory.mktemp("help")
    for block in follow_doc.blocks(ROOT / "README.md"):
        if block.options.get("file") in ("first.c", "reverse.c"):
            (folder / block.options["file"]).write_text(block.text)
    own = (folder / "reverse.c").read_text().replace("reverse(", "my_op(")
    (folder / "my_op.c").write_text(own)
    (folder / "kernel.cu").write_text((ROOT / "tests/cli/from/add_constant.cu").read_text())
    subprocess.run([ROOT / "build/tenon", "new", "my_op"], cwd=folder, check=True, capture_output=True)
    include = ["-I", ROOT / "include"]
    subprocess.run(["cc", "-shared", "-fPIC", *include, "my_op.c", "-o", "my_op.so"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("verb", VERBS)
def test_examples_run(place: Path, verb: str) -> None:
    found = examples(verb)
    assert len(found) >= 2
    for example in found:
        command = example
        for theirs, own in OWN.items():
            command = command.replace(theirs, own)
        if "compute-sanitizer" in command or "--device cuda" in command:
            continue  # `make test-gpu` has these
        if command == "tenon check" or "--all" in command:
            command = command.replace("--all", 'relu --shape "s=[9]"') if "--all" in command else "tenon check relu"
        if command == "tenon bench softmax":
            command += ' --shape "s=[64, 100]"'
        for name, more in BRIEF.items():
            command = re.sub(rf"^tenon {name}\b(.*?)( >.*)?$", rf"tenon {name}\1 {more}\2", command)
        env = {**os.environ, "PATH": f"{ROOT / 'build'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python")}
        command = command.replace("tenon watch", ENDED)
        command = command.replace("python -m", f"{shlex.quote(sys.executable)} -m")
        if "tenon.doctor" in command:
            command += " python library"
        done = subprocess.run(["sh", "-c", command], cwd=place, env=env, text=True, capture_output=True, timeout=300)
        assert done.returncode == 0, f"{example}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def test_the_overview_names_every_verb() -> None:
    said = tenon("help").stdout
    assert re.findall(r"^  tenon (\w+) ", said, re.MULTILINE)[: len(VERBS)] == list(VERBS)
    assert tenon("help", "fuze").returncode == 2 and "did you mean `tenon fuse`" in tenon("help", "fuze").stderr


@pytest.mark.parametrize("topic", ["formulas", "contract"])
def test_the_languages_are_in_the_library(topic: str, tmp_path: Path) -> None:
    """What docs/ says, without Markdown, wherever the command is run."""
    done = subprocess.run([ROOT / "build/tenon", "help", topic], text=True, capture_output=True, cwd=tmp_path)
    said = done.stdout
    assert done.returncode == 0 and done.stderr == ""
    assert all(len(line) <= 120 for line in said.splitlines())
    assert not re.search(r"```|^#+ |^\|.*\|$|\]\(|\\\|", said, re.MULTILINE), "Markdown"
    flat = " ".join(said.split())
    blocks = [b for b in follow_doc.blocks(ROOT / f"docs/{topic}.md") if b.language in ("formula", "tenon")]
    shown = [b for b in blocks if " ".join(b.text.split()) in flat]
    assert len(shown) >= len(blocks) - 1 > 5  # the first one of contract.md stands above what is printed
    assert f"tenon help {topic} " in tenon("help").stdout
    nearly = tenon("help", topic[:-1])
    assert nearly.returncode == 2 and f"did you mean `tenon help {topic}`" in nearly.stderr


@pytest.mark.parametrize("command", ["build/tenon ops", "build/tenon ops --json", "{python} -m tenon ops --json"])
def test_a_reader_that_has_seen_enough(command: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    text = f"{command.format(python=shlex.quote(sys.executable))} | head -n 1"
    done = subprocess.run(["sh", "-c", text], cwd=ROOT, env=env, text=True, capture_output=True)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.count("\n") == 1


@pytest.mark.parametrize("formula", ["f(x: e4m3[*s]) -> y: f32[*s] : f32(x) * 2", "f(x: f32[*s]) -> y: e5m2[*s] : x"])
def test_8_bit_floats_are_refused_on_a_gpu(formula: str) -> None:
    """Their bits were taken for integers."""
    said = tenon("fuse", formula, "--show", "cuda")
    assert said.returncode == 1 and "f: formulas on a GPU have no e" in said.stderr
    assert tenon("fuse", formula, "--show", "c").returncode == 0


def test_an_unknown_option() -> None:
    done = tenon("flags", "--foo")
    assert done.returncode == 2 and done.stderr.startswith("tenon flags: there is no option --foo\n`tenon help flags`")
    assert "did you mean --libs?" in tenon("flags", "--lib").stderr
    assert "there are only options, and 'foo' is none" in tenon("flags", "foo").stderr
    done = tenon("fuse", "-x")
    assert "there is no option -x; write -- before an argument that begins with '-'" in done.stderr
    assert tenon("fuse", "--no-bench", "--", "-x").returncode == 0


@pytest.mark.parametrize(
    "words", [("softmax", "--shape", "q=[3]"), ("relu", "sofmax"), ("relu", "--dtype", "f33"), ("relu", "--ncu")]
)
def test_bench_prints_nothing_above_what_it_refuses(words: tuple[str, ...]) -> None:
    done = tenon("bench", *words)
    assert done.returncode != 0 and done.stdout == "" and done.stderr.startswith("tenon bench: ")


def test_bench_prints_its_heading_once() -> None:
    said = tenon("bench", "relu", "--shape", "s=[9]", "--dtype", "f32,f64", "--ms", "1").stdout.splitlines()
    assert [line.split()[0] for line in said] == ["relu", "shape", "s=[9]", "s=[9]"]
