"""`tenon new`, `tenon build` and `tenon watch`: a project of one operator."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from command import ENV, ROOT, TENON, has_nvrtc, tenon

TEMPLATES = ("elementwise", "row", "tile", "reduction", "scan", "stencil")

FORMULA_ONLY = """#include <tenon/op.h>
static const tn_sample samples[] = {{"s=[7]"}, {0}};
static const tn_op twice = {
    .signature = "twice(x: f32[*s]) -> y: f32[*s]", .doc = "x + x", .formula = "x + x", .samples = samples};
static const tn_op *const table[] = {&twice};
const tn_plugin tenon_plugin = TN_PLUGIN(table);
"""


# ---- new -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_passes_the_check(template: str, tmp_path: Path) -> None:
    """Built as it is; on the CPU. The GPU's part is tests/cuda's."""
    made = tenon("new", "my_op", "--template", template, folder=tmp_path)
    assert made.returncode == 0, made.stderr
    built = tenon("build", "my_op", "--arch", "none", folder=tmp_path)
    assert built.returncode == 0 and "warning" not in built.stderr, built.stdout + built.stderr
    cases = "values,special,empty,misaligned,grad"
    words = ("check", "--only-loaded", "--quick", "--case", cases, "--dtype", "f32,bf16,f64")
    done = tenon("--load", "my_op/my_op.tenon.so", *words, folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d\d+ passed, 0 failed", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_kernels_of_a_template_compile(template: str, tmp_path: Path) -> None:
    """For every type, by NVRTC, and the code is in what is built."""
    if not has_nvrtc():
        pytest.skip("there is no NVRTC")
    tenon("new", "my_op", "--template", template, folder=tmp_path)
    plain = tenon("build", "my_op", "--arch", "none", "-o", "plain.so", folder=tmp_path)
    built = tenon("build", "my_op", "--arch", "90", folder=tmp_path)
    assert plain.returncode == 0 and built.returncode == 0, built.stdout + built.stderr
    assert "my_op: my_op.cu for sm_90" in built.stdout
    data = (tmp_path / "my_op/my_op.tenon.so").read_bytes()
    cubins = data.count(b"\x7fELF\x02\x01\x01\x41") + data.count(b"\x7fELF\x02\x01\x01\x33")  # CUDA's own ABI
    assert cubins == (8 if template == "scan" else 4)  # f16, bf16, f32, f64; scan has two operators
    assert b"tenon_built" not in (tmp_path / "plain.so").read_bytes()


@pytest.mark.parametrize("template", TEMPLATES)
def test_lines_of_templates_are_short_and_explained(template: str, tmp_path: Path) -> None:
    tenon("new", "my_operator", tmp_path / "p", "--template", template)
    for name in ("my_operator.c", "my_operator.cu", "README.md"):
        text = (tmp_path / "p" / name).read_text()
        assert "@" not in text and max(map(len, text.splitlines())) <= 120
        if not name.endswith(".md"):
            assert text.startswith("/* my_operator") and text.count("/*") > 5


WRONG = {
    ("new",): "needs a name",
    ("new", "MyOp"): "'MyOp' is no name for an operator",
    ("new", "2fast"): "is no name for an operator",
    ("new", "double"): "means something else in C or Python",
    ("new", "softmax"): "Tenon has a 'softmax' already",
    ("new", "my_op", "--template", "elementwize"): "did you mean elementwise?",
    ("new", "my_op", "--template", "row", "--from", "x.cu"): "--template and --from are two ways to begin; take one",
    ("new", "my_op", "--json"): "--json goes with --from",
    ("new", "my_op", "--from", "nowhere.cu"): "nowhere.cu: No such file or directory",
    ("build", "nowhere"): "nowhere: No such file or directory",
    ("build", "."): "has no .c file with an operator; `tenon new my_op` writes one",
    ("watch", "."): "has no .c file with an operator",
    ("build", ".", "more"): "takes one folder",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_what_is_wrong_is_said(words: tuple[str, ...], tmp_path: Path) -> None:
    done = tenon(*words, folder=tmp_path)
    assert done.returncode in (1, 2) and WRONG[words] in done.stderr, done.stderr
    assert not [*tmp_path.iterdir()]


def test_files_that_are_there_stay(tmp_path: Path) -> None:
    (tmp_path / "my_op").mkdir()
    (tmp_path / "my_op/my_op.c").write_text("mine")
    done = tenon("new", "my_op", folder=tmp_path)
    assert done.returncode == 1 and "is there already, and stays as it is" in done.stderr
    assert (tmp_path / "my_op/my_op.c").read_text() == "mine"


# ---- build ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "twice").mkdir()
    (tmp_path / "twice/twice.c").write_text(FORMULA_ONLY)
    return tmp_path / "twice"


def test_a_formula_needs_no_kernel(project: Path) -> None:
    done = tenon("build", folder=project)
    assert done.returncode == 0 and re.match(r"./twice.tenon.so  \d+ kB, built in", done.stdout), done.stderr
    assert "twice" in tenon("--load", "./twice.tenon.so", "ops", "twice", folder=project).stdout


def test_a_missing_compiler_is_told_with_what_to_install(project: Path) -> None:
    done = tenon("build", project, env={"TENON_CC": "no-such-compiler"})
    assert done.returncode == 1 and "there is no C compiler to use: there is no 'no-such-compiler'" in done.stderr
    assert "unset TENON_CC" in done.stderr
    empty = project / "empty"
    empty.mkdir()
    env = {name: value for name, value in os.environ.items() if name not in ("TENON_CC", "CC")}
    bare = subprocess.run([TENON, "build", project], text=True, capture_output=True, env={**env, "PATH": str(empty)})
    assert bare.returncode == 1 and re.search(r"install", bare.stderr), bare.stderr


@pytest.fixture(scope="module")
def no_nvrtc(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A library that has nothing of NVRTC, in its place."""
    path = tmp_path_factory.mktemp("nvrtc") / "libnvrtc.so.12"
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", path], check=True)
    return {"TENON_NVRTC": str(path)}


def test_without_nvrtc_the_text_stays(tmp_path: Path, no_nvrtc: dict[str, str]) -> None:
    tenon("new", "my_op", folder=tmp_path)
    done = tenon("build", "my_op", folder=tmp_path, env=no_nvrtc)
    assert done.returncode == 0 and "kernels stay text, and are compiled when they are first called" in done.stderr
    wanted = tenon("build", "my_op", "--arch", "90", folder=tmp_path, env=no_nvrtc)
    assert wanted.returncode == 1 and "NVRTC" in wanted.stderr


def test_errors_of_compilers_name_the_file_and_leave_what_was_built(project: Path) -> None:
    assert tenon("build", project).returncode == 0
    before = (project / "twice.tenon.so").read_bytes()
    (project / "twice.c").write_text(FORMULA_ONLY.replace("&twice}", "&thrice}"))
    done = tenon("build", project)
    assert done.returncode == 1 and "twice.c:5" in done.stderr and "was not built" in done.stderr
    (project / "twice.c").write_text(FORMULA_ONLY.replace("twice(x: f32", "twice(x f32"))
    done = tenon("build", project)
    assert done.returncode == 1 and "expected ':'" in done.stderr
    assert (project / "twice.tenon.so").read_bytes() == before
    assert not [*project.glob("*.new")]


def test_errors_of_nvrtc_name_the_line(tmp_path: Path) -> None:
    if not has_nvrtc():
        pytest.skip("there is no NVRTC")
    tenon("new", "my_op", folder=tmp_path)
    kernel = tmp_path / "my_op/my_op.cu"
    lines = kernel.read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if "return tn::silu(x) * y;" in line)
    lines[at] = "    return tn::sylu(x) * y;"
    kernel.write_text("\n".join(lines))
    done = tenon("build", "my_op", "--arch", "90", folder=tmp_path)
    assert done.returncode == 1 and f"my_op.cu({at + 1})" in done.stderr and "sylu" in done.stderr


def test_code_that_was_compiled_ahead_needs_no_nvrtc(tmp_path: Path, no_nvrtc: dict[str, str]) -> None:
    """On a GPU that is made up, which launches and computes nothing: what is launched is there."""
    fake = ROOT / "build/fake_cuda.so"
    if not fake.is_file() or not has_nvrtc():
        pytest.skip("needs NVRTC, and build/fake_cuda.so")
    tenon("new", "my_op", folder=tmp_path)
    said = {}
    for arch in ("90", "none"):
        assert tenon("build", "my_op", "--arch", arch, "-o", f"{arch}.so", folder=tmp_path).returncode == 0
        env = {**no_nvrtc, "LD_PRELOAD": str(fake), "TENON_CACHE_DIR": str(tmp_path / arch)}
        words = (
            "check",
            "my_op",
            "--device",
            "cuda",
            "--kernel",
            "gpu",
            "--case",
            "values",
            "--dtype",
            "f32",
            "--quick",
        )
        said[arch] = tenon("--load", f"./{arch}.so", *words, folder=tmp_path, env=env).stdout
    assert "z[0] was never written" in said["90"] and "NVRTC" not in said["90"], said["90"]
    assert "NVRTC" in said["none"] and "was never written" not in said["none"], said["none"]


MISTAKES = {
    ("my_op.cu", "long long z_count)", "long long how_many)"): "nothing is called 'how_many'",
    ("my_op.cu", "const T *__restrict__ x", "T *__restrict__ x"): "x is an input, so my_op takes it as `const T *x`",
    ("my_op.c", "elements(8)", "elemints(8)"): "launch: expected elements, rows, tiles",
    ("my_op.c", "elements(8)", "grid=columbs"): "'columbs' is none of",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m[2])
def test_parameters_and_launches_are_checked_when_it_is_built(mistake: tuple[str, str, str], tmp_path: Path) -> None:
    """No GPU is needed to see that a name is wrong."""
    tenon("new", "my_op", folder=tmp_path)
    name, right, wrong = mistake
    path = tmp_path / "my_op" / name
    assert right in path.read_text()
    path.write_text(path.read_text().replace(right, wrong))
    done = tenon("build", "my_op", "--arch", "none", folder=tmp_path)
    assert done.returncode == 1 and MISTAKES[mistake] in done.stderr, done.stderr


def test_a_name_that_is_taken_is_refused_when_it_is_built(project: Path) -> None:
    (project / "twice.c").write_text(FORMULA_ONLY.replace('"twice(', '"relu('))
    done = tenon("build", project)
    assert done.returncode == 1 and "relu" in done.stderr


@pytest.mark.parametrize("given", ["x", "80;90", "1"])
def test_architectures_that_are_none(given: str, tmp_path: Path) -> None:
    if not has_nvrtc():
        pytest.skip("there is no NVRTC")
    tenon("new", "my_op", folder=tmp_path)
    done = tenon("build", "my_op", "--arch", given, folder=tmp_path)
    assert done.returncode == 1 and "expected numbers such as 80,90, or none" in done.stderr


def test_several_files_become_one(project: Path) -> None:
    other = FORMULA_ONLY.replace("tn_plugin tenon_plugin = TN_PLUGIN(table)", "tn_op *const also = &twice")
    (project / "thrice.c").write_text(other.replace("twice", "thrice").replace("x + x", "x + x + x"))
    both = FORMULA_ONLY.replace(
        "static const tn_op *const table", "extern const tn_op *const also;\nstatic const tn_op *table"
    )
    both = both.replace(
        "&twice};", "&twice, 0};\n__attribute__((constructor)) static void join(void) { table[1] = also; }"
    )
    (project / "twice.c").write_text(both)
    done = tenon("build", project, "-o", project / "out.so")
    assert done.returncode == 0, done.stderr
    assert {"twice", "thrice"} <= set(tenon("--load", project / "out.so", "ops").stdout.split())


# ---- watch ---------------------------------------------------------------------------------------------------------


class Watch:
    """`tenon watch`, and what it has printed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "watch.log"
        self.file = self.path.open("w")
        self.process = subprocess.Popen([TENON, "watch", folder], stdout=self.file, stderr=self.file, env=ENV)

    def until(self, *counts: tuple[str, int]) -> str:
        for _ in range(600):
            said = self.path.read_text()
            if all(said.count(text) >= n for text, n in counts):
                return said
            assert self.process.poll() is None, said
            time.sleep(0.1)
        raise AssertionError(self.path.read_text())


def test_watch_builds_and_checks_again(project: Path) -> None:
    watch = Watch(project)
    try:
        watch.until(("passed  waiting for changes", 1))
        (project / "twice.c").write_text(FORMULA_ONLY.replace("&twice}", "&thrice}"))
        said = watch.until(("failed  waiting for changes", 1))
        assert "twice.c:5" in said
        (project / "notes.txt").write_text("does not matter")
        editor = project / ".twice.c.swp"  # as editors save: a file beside it, then a new name
        editor.write_text(FORMULA_ONLY)
        editor.rename(project / "twice.c")
        said = watch.until(("passed  waiting for changes", 2))
        assert said.count("waiting for changes") == 3
        watch.process.send_signal(signal.SIGINT)
        assert watch.process.wait(10) == 0
    finally:
        watch.process.kill()
        watch.process.wait()
        watch.file.close()


# ---- a Python package ----------------------------------------------------------------------------------------------


def test_a_package_becomes_a_wheel(tmp_path: Path, no_nvrtc: dict[str, str]) -> None:
    """`pip wheel .` without a network; what it makes works from another folder, its example and its tests run."""
    pytest.importorskip("pip")
    pytest.importorskip("numpy")
    tenon("new", "my_op", "--python", "--template", "tile", folder=tmp_path)
    project = tmp_path / "my_op"
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-build-isolation", "--no-deps", "-w", tmp_path]
    command += ["--disable-pip-version-check", "--no-index"]
    env = {**ENV, **no_nvrtc}  # what NVRTC makes is tested above
    done = subprocess.run(command, cwd=project, text=True, capture_output=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert re.fullmatch(r"my_op-0\.1\.0-py3-none-(many)?linux_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    assert {"my_op/__init__.py", "my_op/my_op.tenon.so", "my_op-0.1.0.dist-info/RECORD"} <= set(names)
    assert not any("test" in name for name in names)
    shutil.copy(project / "example_usage.py", tmp_path / "site")
    example = [sys.executable, "example_usage.py"]
    ran = subprocess.run(example, cwd=tmp_path / "site", text=True, capture_output=True, env=ENV)
    assert ran.returncode == 0 and ran.stdout.split() == ["[[0.", "3.]", "[1.", "4.]", "[2.", "5.]]"], ran.stderr
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "there"]
    ran = subprocess.run(tests, cwd=project, text=True, capture_output=True, env=ENV)
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout


@pytest.mark.parametrize("template", TEMPLATES)
def test_examples_of_packages_run(template: str, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    tenon("new", "my_op", "--python", "--template", template, folder=tmp_path)
    assert tenon("build", "my_op", "--arch", "none", folder=tmp_path).returncode == 0
    command = [sys.executable, "example_usage.py"]
    done = subprocess.run(command, cwd=tmp_path / "my_op", text=True, capture_output=True, env=ENV)
    assert done.returncode == 0 and "[" in done.stdout, done.stderr
