"""The wheel: built by pip as a user does, installed where nothing else is, and used from there.

Its device code is what build/ has, so that nothing is compiled again.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import platform
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import check_glibc  # noqa: E402
import follow_doc  # noqa: E402
import make_wheel  # noqa: E402
import stubs  # noqa: E402


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an environment, env, in which the wheel, the only file of dist, is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [folder / "env/bin/python", "-m", "pip", "--disable-pip-version-check", "-q"]
    same_as_build = {**os.environ, "TENON_CUDA_ARCHS": os.environ.get("TENON_CUDA_ARCHS", "")}
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder / "dist", ROOT], check=True, env=same_as_build)
    subprocess.run([*pip, "install", "--no-index", *(folder / "dist").iterdir()], check=True)
    return folder


@pytest.fixture(scope="session")
def wheel(place: Path) -> Path:
    (made,) = (place / "dist").iterdir()
    return made


def run(place: Path, *command: str, status: int = 0, python_path: Path | None = None) -> str:
    """What a command of the environment prints, away from the project and from what the tests were told."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TENON", "PYTHON"))}
    if python_path:
        env["PYTHONPATH"] = str(python_path)
    program = [place / "env/bin" / command[0], *command[1:]]
    done = subprocess.run(program, cwd=place, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == status, done.stdout
    return done.stdout


# ---- what it is ----------------------------------------------------------------------------------------------------


def test_one_wheel_for_every_python_and_for_old_systems(wheel: Path) -> None:
    assert wheel.name == f"libtenon-{make_wheel.project()['version']}-py3-none-manylinux_2_28_{platform.machine()}.whl"
    assert wheel.stat().st_size < make_wheel.MOST_BYTES


def test_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (info,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        for row in archive.read(f"{info}/RECORD").decode().splitlines():
            name, digest, size = row.split(",")
            if digest:
                data = archive.read(name)
                told = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={told}", str(len(data))), name
            names.remove(name)
        assert not names
        about = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        listed = set(archive.namelist())
    assert about["Requires-Python"] == ">=3.10"
    assert f"Source, {make_wheel.project()['urls']['Source']}" in about.get_all("Project-URL")
    assert "PyTorch" in about["Keywords"].split(",") and "Typing :: Typed" in about.get_all("Classifier")
    assert about["Description-Content-Type"] == "text/markdown" and about.get_payload().startswith("# Tenon\n")
    needs = about.get_all("Requires-Dist")
    assert 'torch>=2.10; extra == "torch"' in needs and all("; extra == " in need for need in needs)
    package = (
        "libtenon.so.0",
        "libtenon.so",
        "libtenon_tensorflow.so",
        "tenon",
        "py.typed",
        "include/tenon.h",
        "include/tenon/ops.h",
        "include/tenon/cuda.h",
        "include/tenon/device.cuh",
        "torch/__init__.py",
        *(f"{framework}/{stubs.NAME}" for framework in stubs.NAMES),
    )
    assert {f"tenon/{name}" for name in package} | {f"{info}/licenses/LICENSE"} <= listed


def test_other_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source archive, and what `pip install -e .` installs."""
    monkeypatch.setenv("TENON_CUDA_ARCHS", os.environ.get("TENON_CUDA_ARCHS", ""))
    name = make_wheel.name_and_version()
    with tarfile.open(tmp_path / make_wheel.build_sdist(str(tmp_path))) as archive:
        listed = archive.getnames()
    assert {f"{name}/{file}" for file in ("PKG-INFO", "pyproject.toml", "tools/make_wheel.py")} <= set(listed)
    assert not any(file.startswith((f"{name}/build", f"{name}/.venv/")) for file in listed)
    with zipfile.ZipFile(tmp_path / make_wheel.build_editable(str(tmp_path))) as archive:
        assert archive.read("libtenon.pth").decode().strip() == str(ROOT / "python")


def test_what_is_too_new_is_found(tmp_path: Path) -> None:
    """Of a program that was built without src/glibc."""
    if tuple(int(n) for n in platform.libc_ver()[1].split(".")) < (2, 34):
        pytest.skip("this system's glibc has no newer dlopen")
    program = tmp_path / "program"
    source = "#include <dlfcn.h>\nint main(void) { return dlopen(0, RTLD_NOW) == 0; }"
    subprocess.run(["cc", "-x", "c", "-", "-o", program], input=source, text=True, check=True)
    assert "dlopen of GLIBC_2.34" in check_glibc.too_new(program)


# ---- importing it --------------------------------------------------------------------------------------------------


def test_import_takes_no_time_and_opens_no_driver(place: Path) -> None:
    code = """
import time
begin = time.perf_counter()
import tenon; tenon.__version__
seconds = time.perf_counter() - begin
import sys
assert "libcuda" not in open("/proc/self/maps").read() and "numpy" not in sys.modules
print(seconds)
"""
    times = (float(run(place, "python", "-c", code)) for _ in range(20))  # other tests run beside it
    assert any(seconds < 0.05 for seconds in times)


BAD_TORCH = {
    "missing": (None, "needs PyTorch 2.10 or newer, and there is none: pip install torch"),
    "too old": ('__version__ = "2.4.0+cu121"', "torch/__init__.py is 2.4.0+cu121: pip install --upgrade torch"),
    "oldest": ('__version__ = "1.13.1"', "is 1.13.1: pip install --upgrade torch"),
    "none at all": ("", "is no PyTorch: pip install --upgrade torch"),
    "broken": ("import libc10_cuda", "No module named 'libc10_cuda'"),
}


@pytest.mark.parametrize("what", BAD_TORCH)
def test_a_torch_that_cannot_be_used(place: Path, tmp_path: Path, what: str) -> None:
    source, message = BAD_TORCH[what]
    if source is not None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch/__init__.py").write_text(source)
    said = run(place, "python", "-c", "import tenon.torch", status=1, python_path=tmp_path)
    assert message in said.splitlines()[-1]


# ---- using it ------------------------------------------------------------------------------------------------------


def test_command(place: Path) -> None:
    assert "softmax" in run(place, "tenon", "ops")
    assert " 0 failed" in run(place, "tenon", "check", "softmax", "--quick", "--dtype", "f32")
    assert "there is no 'opps'" in run(place, "tenon", "opps", status=2)
    assert run(place, "python", "-m", "tenon", "--version") == run(place, "tenon", "--version")


def test_doctor(place: Path, wheel: Path) -> None:
    """What pip has installed is whole, and is seen to be damaged when it is."""
    assert "PASS  package " in run(place, "tenon", "doctor", "package", "operator_cpu", "formula_cpu")
    (module,) = place.glob("env/lib/*/site-packages/tenon/infer.py")
    text = module.read_bytes()
    module.write_bytes(text + b"\n")
    said = run(place, "tenon", "doctor", "package", status=1)
    module.write_bytes(text)
    assert "tenon/infer.py was changed" in said and f"pip install --force-reinstall {wheel}" in said


def test_c_program(place: Path) -> None:
    (block,) = (b for b in follow_doc.blocks(ROOT / "README.md") if b.options.get("file") == "first.c")
    (place / "first.c").write_text(block.text)
    flags = run(place, "tenon", "flags").split()
    assert not any(str(ROOT) in flag for flag in flags)
    subprocess.run(["cc", "first.c", *flags, "-o", "first"], cwd=place, check=True)
    assert subprocess.run([place / "first"], capture_output=True, text=True).stdout == "0.090 0.245 0.665\n"


@cache
def torch_folder() -> Path | None:
    """Where the tests' own Python has torch."""
    found = importlib.util.find_spec("torch")
    return Path(found.origin).parent.parent if found and found.origin else None


@pytest.mark.skipif(torch_folder() is None, reason="no torch")
@pytest.mark.parametrize("first", ["import torch", "import tenon", "import tenon.torch"])
def test_torch(place: Path, first: str) -> None:
    """Whichever of the two comes first."""
    code = f"""
{first}
import torch
import tenon.torch as tn
x = torch.randn(4, 33, requires_grad=True)
y = tn.softmax(x)
y.square().sum().backward()
z = x.detach().clone().requires_grad_()
torch.softmax(z, -1).square().sum().backward()
assert torch.allclose(x.grad, z.grad, atol=1e-6) and torch.allclose(tn.fuse("relu(x)")(x), x.relu())
print(tn.__file__)
"""
    assert str(place / "env") in run(place, "python", "-c", code, python_path=torch_folder())
