"""`tenon doctor` and `python -m tenon.doctor`: each fault that is planted here is named, with its fix.

The machine that they see is made up where that is needed: the CUDA driver is tests/plugins/fake_cuda.c, libraries and
compilers are a few lines, packages are folders on PYTHONPATH, and TENON_DOCTOR_ROOT stands for /sys and /proc.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TENON = ROOT / "build" / "tenon"
FAKE_CUDA = ROOT / "build" / "fake_cuda.so"


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


no_driver = pytest.mark.skipif(has_driver(), reason="this machine has an NVIDIA driver")


class Machine:
    """A clean environment, to which faults are added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}
        self.python_path = [str(ROOT / "python")]

    def file(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def library(self, name: str, source: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["cc", "-shared", "-fPIC", "-w", "-x", "c", "-", f"-Wl,-soname,{path.name}", "-o", str(path)]
        subprocess.run(command, input=source, text=True, check=True)
        return path

    def package(self, name: str, source: str) -> None:
        self.file(f"packages/{name}/__init__.py", source)
        self.python_path.insert(0, str(self.folder / "packages"))

    def framework(self, name: str, source: str) -> None:
        """A package, and an adapter that finds nothing wrong with it."""
        self.package(name, source)
        self.file(
            "packages/sitecustomize.py",
            "import importlib.machinery, sys, types\n"
            f"adapter = sys.modules['tenon.{name}'] = types.ModuleType('tenon.{name}')\n"
            f"adapter.__spec__ = importlib.machinery.ModuleSpec('tenon.{name}', None)\n",
        )

    def gpu(self, what: str = "", file: Path = FAKE_CUDA) -> None:
        """A driver that is made up, and what goes wrong with it."""
        self.env |= {"LD_PRELOAD": str(file), "FAKE_CUDA": what}

    def plug_in_gpu(self, module: str = "") -> None:
        """One on the bus; `module`: the version of the kernel's part of the driver."""
        self.file("root/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
        self.file("root/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")
        if module:
            self.file("root/sys/module/nvidia/version", f"{module}\n")
        self.env["TENON_DOCTOR_ROOT"] = str(self.folder / "root")

    def run(self, *words: str, python: bool = False) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tenon.doctor"] if python else [str(TENON), "doctor"]
        env = {**self.env, "PYTHONPATH": os.pathsep.join(self.python_path)}
        return subprocess.run([*command, *words], env=env, text=True, capture_output=True, timeout=120)

    def check(self, name: str, *words: str, python: bool = False) -> dict[str, str]:
        """One check's result."""
        done = self.run(name, "--json", *words, python=python)
        assert done.stderr == "" and done.returncode in (0, 1), done
        (result,) = json.loads(done.stdout)["checks"]
        assert done.returncode == (result["state"] == "FAIL")
        return {key: value or "" for key, value in result.items() if key != "milliseconds"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# ---- a machine that is well ----------------------------------------------------------------------------------------


def test_nothing_fails_on_a_healthy_machine(machine: Machine) -> None:
    begin = time.monotonic()
    done = machine.run()
    assert done.returncode == 0 and done.stderr == "", done.stdout
    assert " 0 failed" in done.stdout and "python -m tenon.doctor" in done.stdout
    for line in ("PASS  library ", "PASS  operator_cpu ", "PASS  formula_cpu ", "PASS  cache "):
        assert f"\n{line}" in f"\n{done.stdout}"
    assert time.monotonic() - begin < 60
    assert not (machine.folder / ".cache").exists(), "it changes nothing"


@no_driver
def test_without_a_gpu_what_needs_one_is_skipped(machine: Machine) -> None:
    machine.env["TENON_DOCTOR_ROOT"] = str(machine.folder)
    for name in ("driver", "visible_devices", "gpu", "operator_gpu", "formula_gpu", "cublaslt_gpu"):
        assert machine.check(name)["state"] == "SKIP"


def test_python_and_frameworks(machine: Machine) -> None:
    machine.package("torch", '__version__ = "2.10.0"')  # what is really installed is tested elsewhere
    machine.framework("jax", '__version__ = "1"')
    done = machine.run("python", "jax", "--json", python=True)
    python, jax = json.loads(done.stdout)["checks"]
    assert python["state"] == "PASS" and sys.executable in python["observed"]
    assert jax["state"] == "PASS" and "jax 1, " in jax["observed"]
    assert machine.run("library", python=True).stdout.startswith("PASS  library ")


def test_the_command_of_the_package_looks_at_python_too(machine: Machine) -> None:
    env = {**machine.env, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-m", "tenon", "doctor", "python", "library"]
    done = subprocess.run(command, env=env, text=True, capture_output=True)
    assert done.returncode == 0 and "PASS  python " in done.stdout and "PASS  library " in done.stdout


def test_an_adapter_that_is_there_is_loaded(machine: Machine) -> None:
    """Adapters are found by their names: tenon.<framework>."""
    shutil.copytree(ROOT / "python" / "tenon", machine.folder / "copy" / "tenon")
    machine.file("copy/tenon/onnxruntime/__init__.py", "import onnxruntime")
    machine.package("onnxruntime", '__version__ = "9.9"')
    machine.env["TENON_LIBRARY"] = str(ROOT / "build" / "libtenon.so")
    machine.python_path[-1] = str(machine.folder / "copy")
    assert "tenon.onnxruntime loads" in machine.check("onnxruntime", python=True)["observed"]
    machine.file("copy/tenon/onnxruntime/__init__.py", "raise ImportError('no such operator set')")
    result = machine.check("onnxruntime", python=True)
    assert result["state"] == "FAIL" and "no such operator set" in result["reason"]
    assert "import tenon.onnxruntime" in result["fix"]


# ---- the form ------------------------------------------------------------------------------------------------------


def test_json_is_as_documented(machine: Machine) -> None:
    machine.env["TENON_CACHE_DIR"] = "/dev/null/below-a-file"
    machine.package("jax", "1 / 0")
    done = machine.run("--json", "cache", "library", "nccl", "jax", python=True)
    told = json.loads(done.stdout)
    assert done.returncode == 1
    assert set(told) == {"tenon", "checks", "passed", "warnings", "failed", "skipped", "milliseconds"}
    states = [check["state"] for check in told["checks"]]
    for key, state in (("passed", "PASS"), ("warnings", "WARN"), ("failed", "FAIL"), ("skipped", "SKIP")):
        assert told[key] == states.count(state)
    for check in told["checks"]:
        assert set(check) == {"id", "state", "observed", "required", "reason", "fix", "milliseconds"}
        assert isinstance(check["milliseconds"], int)
        assert all(check[key] is None or check[key] for key in ("observed", "required", "reason", "fix"))
        if check["state"] in ("WARN", "FAIL"):
            assert check["observed"] and check["required"] and check["reason"] and check["fix"], check
    document = (ROOT / "docs" / "doctor.md").read_text()
    for key in (*told, *told["checks"][0]):
        assert f"`{key}`" in document, key


@pytest.mark.parametrize("words", ["doctor cpu", "doctor cpu --json", "ops", "ops --json", "help check", "--version"])
def test_output_that_cannot_be_written(words: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(TENON), *words.split()], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.startswith("tenon: the output could not be written")
    assert done.stderr.count("\n") == 1


def test_documented_checks_are_the_checks(machine: Machine) -> None:
    listed = dict(re.findall(r"^  (\w+) +(.*)$", machine.run("--list", python=True).stdout, re.MULTILINE))
    documented = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", (ROOT / "docs" / "doctor.md").read_text(), re.MULTILINE))
    assert listed == documented and len(listed) > 20


def test_unknown_checks_and_options(machine: Machine) -> None:
    done = machine.run("drivr")
    assert done.returncode == 2 and "did you mean driver?" in done.stderr
    assert machine.run("--jsno").returncode == 2
    for value in ("0", "-3", "x"):
        assert f"--timeout {value}: expected a whole number, 1 or more" in machine.run("--timeout", value).stderr
    assert "--timeout needs a value: --timeout SECONDS" in machine.run("--timeout=").stderr
    assert "--timeout 0.5: expected a whole number" in machine.run("--timeout", "0.5").stderr
    done = machine.run("jax")
    assert done.returncode == 2 and "there is no check 'jax'; `python -m tenon.doctor` has more" in done.stderr
    assert "has more" not in machine.run("jaxx", python=True).stderr
    told = machine.run("--help").stdout
    assert "tenon doctor" in told and "visible_devices" in told


def test_text_aligns_and_puts_the_fix_below(machine: Machine) -> None:
    machine.env["TENON_CACHE_DIR"] = "/dev/null/below-a-file"
    lines = machine.run("cache").stdout.splitlines()
    assert lines[0].startswith("WARN  cache           /dev/null/below-a-file cannot be written to: Not a directory")
    assert [line[:22].split() for line in lines[1:4]] == [["required"], ["because"], ["fix"]]
    assert lines[3][22:].startswith("export TENON_CACHE_DIR=")


# ---- the library and the environment -------------------------------------------------------------------------------


def test_hash_is_that_of_the_file(machine: Machine) -> None:
    data = (ROOT / "build" / "libtenon.so").read_bytes()
    assert hashlib.sha256(data).hexdigest() in machine.check("library")["observed"]


def test_two_packages(machine: Machine) -> None:
    second = machine.file("second/tenon/_lib.py", "").parent
    machine.python_path.append(str(second.parent))
    result = machine.check("package", python=True)
    assert result["state"] == "WARN" and str(second) in result["reason"] and "pip uninstall libtenon" in result["fix"]


def test_a_file_that_was_changed(machine: Machine) -> None:
    """As installed by pip, which notes a hash of each file."""
    shutil.copytree(ROOT / "python" / "tenon", machine.folder / "site" / "tenon")
    machine.python_path[:] = [str(machine.folder / "site")]
    machine.env["TENON_LIBRARY"] = str(ROOT / "build" / "libtenon.so")
    machine.file("site/libtenon-0.dist-info/METADATA", "Metadata-Version: 2.1\nName: libtenon\nVersion: 0\n")
    machine.file("site/libtenon-0.dist-info/RECORD", "tenon/infer.py,sha256=AAAA,1\ntenon/gone.py,sha256=AAAA,1\n")
    result = machine.check("package", python=True)
    assert result["state"] == "FAIL" and "--force-reinstall libtenon" in result["fix"]
    assert "tenon/infer.py was changed" in result["reason"] and "tenon/gone.py is missing" in result["reason"]
    machine.file("site/libtenon-0.dist-info/RECORD", "tenon/infer.py,,\n")
    result = machine.check("package", python=True)
    assert result["state"] == "WARN" and "the package is of version 0, the library of version" in result["reason"]
    assert "unset TENON_LIBRARY" in result["fix"]


def test_names_that_nothing_reads(machine: Machine) -> None:
    machine.env |= {"TENON_CASHE_DIR": "/tmp", "TENON_ISA": "mmx", "TENON_NUM_THREADS": "many"}
    result = machine.check("environment")
    assert result["state"] == "WARN"
    assert "nothing reads TENON_CASHE_DIR; did you mean TENON_CACHE_DIR?" in result["reason"]
    assert 'export TENON_CACHE_DIR="$TENON_CASHE_DIR"; unset TENON_CASHE_DIR' in result["fix"].splitlines()
    assert "TENON_ISA is none of none avx2 avx512" in result["reason"]
    assert {"unset TENON_ISA", "unset TENON_NUM_THREADS"} <= set(result["fix"].splitlines())
    machine.env = {"PATH": machine.env["PATH"], "TENON_JIT": "now", "TENON_ISA": "none"}
    assert machine.check("environment")["state"] == "PASS"


def test_every_variable_that_is_read_is_known(machine: Machine) -> None:
    pattern = re.compile(r"(?:getenv\(|environ\.get\(|environ\[|variables\[\] = \{|names\[\] = \{)\"(TENON_\w+)")
    folders = ("src", "cli", "adapters", "python")
    sources = [p for folder in folders for p in (ROOT / folder).rglob("*") if p.suffix in (".c", ".h", ".py")]
    read = {name for path in sources for name in pattern.findall(path.read_text())}
    assert {"TENON_CACHE_DIR", "TENON_LIBRARY", "TENON_CC"} <= read
    machine.env |= dict.fromkeys(read, "")
    assert "nothing reads" not in machine.check("environment")["reason"]


def test_stubs_on_the_library_path(machine: Machine) -> None:
    machine.env["LD_LIBRARY_PATH"] = "/usr/lib:/opt/cuda/lib64/stubs"
    result = machine.check("library_path")
    assert result["state"] == "WARN" and "/opt/cuda/lib64/stubs has a libcuda.so" in result["reason"]
    command = f'{result["fix"]}; printf %s "$LD_LIBRARY_PATH"'
    assert subprocess.run(["sh", "-c", command], env=machine.env, capture_output=True, text=True).stdout == "/usr/lib"


def test_a_cache_that_cannot_be_written_to(machine: Machine) -> None:
    machine.env["TENON_CACHE_DIR"] = str(machine.file("file", "") / "cache")
    result = machine.check("cache")
    assert result["state"] == "WARN" and "Not a directory" in result["observed"]
    assert result["fix"].startswith("export TENON_CACHE_DIR=")


def test_a_cache_behind_a_link_to_nothing(machine: Machine) -> None:
    link = machine.folder / "cache"
    link.symlink_to("/scratch-that-is-not-mounted")
    for folder in (link, link / "tenon"):
        machine.env["TENON_CACHE_DIR"] = str(folder)
        result = machine.check("cache")
        assert result["state"] == "WARN" and f"{folder} cannot be written to: No such file" in result["observed"]


def test_a_cache_that_others_can_write_to(machine: Machine) -> None:
    folder = machine.folder / "cache"
    folder.mkdir()
    machine.env["TENON_CACHE_DIR"] = str(folder)
    for mode, who in ((0o777, "everybody"), (0o775, "its group")):
        folder.chmod(mode)
        result = machine.check("cache")
        assert result["state"] == "WARN" and f"chmod go-w '{folder}'" in result["fix"]
        assert result["observed"] == f"{folder} can be written to by {who}"
    folder.chmod(0o700)
    (folder / ("0" * 32)).write_bytes(b"x" * 100_000)
    machine.env["TENON_CACHE_BYTES"] = "5000000"
    result = machine.check("cache")
    assert result["state"] == "PASS" and "1 file, 0.1 of 5 MB" in result["observed"]


# ---- drivers -------------------------------------------------------------------------------------------------------


def test_a_driver_that_is_too_old(machine: Machine) -> None:
    machine.gpu("old")
    result = machine.check("driver")
    assert result["state"] == "FAIL" and "CUDA 11.8" in result["observed"] and "525" in result["required"]
    assert "driver" in result["fix"]
    assert machine.check("gpu")["state"] == "SKIP"


@no_driver
def test_a_driver_without_its_library(machine: Machine) -> None:
    machine.plug_in_gpu("580.65.06")
    result = machine.check("driver")
    assert result["state"] == "FAIL" and "its library is not" in result["reason"]
    assert "1 GPU, kernel module 580.65.06, but libcuda.so.1 cannot be opened" in result["observed"]
    machine.file("root/.dockerenv", "")
    assert machine.check("driver")["fix"].startswith("docker run --gpus all")
    hidden = machine.file("root/usr/local/nvidia/lib64/libcuda.so.1", "").parent
    assert f"export LD_LIBRARY_PATH={hidden}" in machine.check("driver")["fix"]


@no_driver
def test_a_gpu_without_a_driver(machine: Machine) -> None:
    machine.plug_in_gpu()
    result = machine.check("driver")
    assert result["state"] == "FAIL" and result["reason"] == "there is no driver" and "driver" in result["fix"]


def test_a_library_that_is_not_of_the_modules_version(machine: Machine) -> None:
    machine.plug_in_gpu("580.65.06")
    library = machine.folder / "libcuda.so.575.51.02"
    shutil.copy(FAKE_CUDA, library)
    machine.gpu("does not start", library)
    result = machine.check("driver")
    assert result["state"] == "FAIL" and result["observed"].startswith("driver 575.51.02, CUDA 12.4")
    assert "kernel module 580.65.06" in result["observed"] and result["fix"].startswith("sudo reboot")
    machine.gpu(file=library)
    assert machine.check("driver")["state"] == "PASS", "CUDA's compat libraries are meant to differ"


def test_a_driver_that_does_not_start(machine: Machine) -> None:
    machine.gpu("does not start")
    result = machine.check("driver")
    assert result["state"] == "FAIL" and "CUDA error 100" in result["observed"] and "--gpus all" in result["fix"]


@pytest.mark.parametrize("value", ["", "-1"])
def test_hidden_gpus(machine: Machine, value: str) -> None:
    machine.gpu("no GPU")
    machine.env["CUDA_VISIBLE_DEVICES"] = value
    result = machine.check("visible_devices")
    assert result["state"] == "WARN" and result["fix"] == "unset CUDA_VISIBLE_DEVICES"
    assert machine.check("driver")["state"] == "PASS"


def test_gpus_that_there_are_not(machine: Machine) -> None:
    machine.gpu()
    machine.env["CUDA_VISIBLE_DEVICES"] = "0,1,7"
    result = machine.check("visible_devices")
    assert result["state"] == "FAIL" and "unset CUDA_VISIBLE_DEVICES" in result["fix"]
    machine.env["CUDA_VISIBLE_DEVICES"] = "0,1"
    assert machine.check("visible_devices")["state"] == "PASS"


def test_what_is_built_in(machine: Machine) -> None:
    machine.gpu()
    result = machine.check("gpu")
    assert "cuda:0 Fake GPU 0 (sm_90)" in result["observed"] and "cuda:1 Fake GPU 1 (sm_90)" in result["observed"]
    assert len(result["fix"].splitlines()) <= 1, "both have the same fault"
    if "nothing built in" in result["observed"]:
        assert result["state"] == "FAIL" and "TENON_CUDA_ARCHS=90 make build" in result["fix"]


def test_no_context_is_made(machine: Machine) -> None:
    """But by the checks on the GPU: making one ends the process here."""
    machine.gpu("no context")
    machine.env["TENON_NVRTC"] = str(nvrtc(machine, "libnvrtc.so.12", "12.4"))
    listed = re.findall(r"^  (\w+) ", machine.run("--list").stdout, re.MULTILINE)
    done = machine.run("--json", *(name for name in listed if not name.endswith("_gpu")))
    checks = json.loads(done.stdout)["checks"]
    assert len(checks) > 15 and not [check for check in checks if "was ended" in check["observed"]]
    assert "was ended by signal 6" in machine.check("formula_gpu")["observed"]


def test_a_driver_that_crashes(machine: Machine) -> None:
    """It costs its own check, not the others."""
    machine.gpu("crashes")
    done = machine.run("driver", "library", "compiler", "--json")
    library, driver, compiler = json.loads(done.stdout)["checks"]
    assert done.returncode == 1
    assert library["state"] == compiler["state"] == "PASS"
    assert driver["state"] == "FAIL" and "was ended by signal 6 (Aborted)" in driver["observed"]
    assert driver["fix"].startswith("gdb ")


def test_a_driver_that_hangs(machine: Machine) -> None:
    machine.gpu("hangs")
    done = machine.run("driver", "compiler", "--json", "--timeout", "1")
    driver, compiler = json.loads(done.stdout)["checks"]
    assert driver["state"] == "FAIL" and "did not end within 1 s" in driver["observed"]
    assert driver["fix"] == "tenon doctor --timeout 4" and compiler["state"] == "PASS"


# ---- libraries -----------------------------------------------------------------------------------------------------

NVRTC = "GetNumSupportedArchs GetSupportedArchs CreateProgram DestroyProgram CompileProgram GetCUBINSize GetCUBIN "
NVRTC += "GetPTXSize GetPTX GetProgramLogSize GetProgramLog AddNameExpression GetLoweredName GetErrorString"


def nvrtc(machine: Machine, name: str, version: str) -> Path:
    source = "".join(f"int nvrtc{function}() {{ return 0; }}" for function in NVRTC.split())
    major, minor = version.split(".")
    source += f"int nvrtcVersion(int *a, int *b) {{ *a = {major}; *b = {minor}; return 0; }}"
    return machine.library(name, source)


def test_an_nvrtc_that_is_too_old(machine: Machine) -> None:
    machine.gpu()
    machine.env["TENON_NVRTC"] = str(nvrtc(machine, "old/libnvrtc.so.12", "11.8"))
    result = machine.check("nvrtc")
    assert result["state"] == "FAIL" and "11.8; version 12 or newer is needed" in result["reason"]
    assert machine.env["TENON_NVRTC"] in result["observed"]
    assert result["fix"] == "unset TENON_NVRTC; python -m pip install nvidia-cuda-nvrtc-cu12"


@no_driver
def test_without_a_gpu_a_bad_nvrtc_is_no_failure(machine: Machine) -> None:
    machine.env["TENON_NVRTC"] = str(nvrtc(machine, "old/libnvrtc.so.12", "11.8"))
    result = machine.check("nvrtc")
    assert result["state"] == "WARN" and "11.8; version 12 or newer is needed" in result["reason"]


def test_an_nvrtc_that_stands_before_the_good_one(machine: Machine) -> None:
    old = nvrtc(machine, "old/libnvrtc.so.13", "11.8")
    machine.env["LD_LIBRARY_PATH"] = f"/usr/lib:{old.parent}"
    result = machine.check("nvrtc")
    assert str(old) in result["observed"] and result["fix"].startswith("unset LD_LIBRARY_PATH")


def test_more_threads_than_there_can_be(machine: Machine) -> None:
    machine.env["TENON_NUM_THREADS"] = "1025"
    result = machine.check("environment")
    assert result["state"] == "WARN" and "is no number from 1 to 1024, and is not used" in result["reason"]


def test_an_nvrtc_that_is_newer_than_the_driver(machine: Machine) -> None:
    machine.gpu()
    machine.env["TENON_NVRTC"] = str(nvrtc(machine, "new/libnvrtc.so.13", "13.0"))
    result = machine.check("nvrtc")
    assert result["state"] == "FAIL" and "needs driver 580; this one is for CUDA 12" in result["reason"]
    assert "pip install nvidia-cuda-nvrtc-cu12 && export TENON_NVRTC=" in result["fix"]


def test_an_nvrtc_that_is_not_there(machine: Machine) -> None:
    machine.env["TENON_NVRTC"] = "/none/libnvrtc.so.12"
    result = machine.check("nvrtc")
    assert result["state"] == "WARN" and "TENON_NVRTC cannot be opened" in result["reason"]
    assert "unset TENON_NVRTC" in result["fix"]


def test_versions_of_other_libraries(machine: Machine) -> None:
    machine.env["TENON_SITE_PACKAGES"] = machine.env["LD_LIBRARY_PATH"] = str(machine.folder)
    machine.library("libcudnn.so.9", "unsigned long cudnnGetVersion() { return 8907; }")
    result = machine.check("cudnn")
    assert (
        result["state"] == "WARN"
        and "cuDNN 8.9.7" in result["observed"]
        and "pip install nvidia-cudnn-cu" in result["fix"]
    )
    machine.library("libcudnn.so.9", "unsigned long cudnnGetVersion() { return 91400; }")
    assert "cuDNN 9.14.0" in machine.check("cudnn")["observed"]
    machine.library("libnccl.so.2", "int ncclGetVersion(int *v) { *v = 22803; return 0; }")
    assert "NCCL 2.28.3" in machine.check("nccl")["observed"]
    machine.library("libcublasLt.so.13", "unsigned long cublasLtGetVersion() { return 130100; }")
    machine.gpu()
    result = machine.check("cublaslt")
    assert "cuBLASLt 13.1.0" in result["observed"] and "needs driver 580" in result["reason"]
    assert result["state"] == "WARN" and "has no cublasLtGetStatusName" in result["reason"]


def test_a_cublaslt_that_is_of_no_use(machine: Machine) -> None:
    machine.env["TENON_CUBLASLT"] = str(ROOT / "build" / "fake_cublaslt.so")
    assert machine.check("cublaslt")["observed"].startswith("cuBLASLt 13.2.3, ")
    machine.env["FAKE_CUBLASLT"] = "old"
    result = machine.check("cublaslt")
    assert result["state"] == "WARN" and "is 11.5; version 12 or newer is needed" in result["reason"]
    assert result["fix"] == "unset TENON_CUBLASLT"
    machine.gpu()
    machine.env["FAKE_CUBLASLT"] = "does not start"
    result = machine.check("cublaslt_gpu")
    assert result["state"] == "WARN" and "cuBLASLt 13.2.3: it does not start" in result["reason"]
    assert "TENON_CUBLASLT=none" in result["fix"]
    machine.env["TENON_CUBLASLT"] = "none"
    result = machine.check("cublaslt")
    assert result["state"] == "SKIP" and result["observed"] == "turned off"
    assert machine.check("environment")["state"] == "PASS"


def test_two_copies_of_a_library(machine: Machine) -> None:
    first, second = (nvrtc(machine, f"{name}/libnvrtc.so.12", "12.4") for name in ("first", "second"))
    machine.env |= {"LD_PRELOAD": str(first), "TENON_NVRTC": str(second)}
    result = machine.check("duplicates")
    assert result["state"] == "WARN" and str(first) in result["observed"] and str(second) in result["observed"]
    assert result["observed"].startswith("libnvrtc: ") and "LD_PRELOAD" in result["fix"]
    machine.framework("jax", '__version__ = "1"')
    result = machine.check("jax", python=True)
    assert result["state"] == "WARN" and str(first) in result["reason"] and str(second) in result["reason"]


# ---- compilers -----------------------------------------------------------------------------------------------------


def test_no_compiler(machine: Machine) -> None:
    machine.env["PATH"] = str(machine.folder)
    result = machine.check("compiler")
    assert result["state"] == "WARN" and "there is no 'cc' on the PATH" in result["observed"] and "gcc" in result["fix"]
    assert "by the interpreter" in machine.check("formula_cpu")["observed"]
    for name in ("no-such-cc", "/bin/false"):
        machine.env |= {"PATH": os.environ["PATH"], "TENON_CC": name}
        assert machine.check("compiler")["fix"] == "unset TENON_CC"


def test_debugging_is_no_fault(machine: Machine) -> None:
    machine.env |= {"CUDA_LAUNCH_BLOCKING": "1", "TENON_SYNC": "1", "TENON_LOG": "1"}
    result = machine.check("environment")
    assert result["state"] == "PASS" and "CUDA_LAUNCH_BLOCKING=1" in result["observed"]
    machine.env["TENON_SYNC"] = "on"
    assert "TENON_SYNC is none of 0 1" in machine.check("environment")["reason"]


def test_plugins_that_are_not_there(machine: Machine) -> None:
    machine.env["TENON_PLUGINS"] = f"{ROOT / 'build' / 'libtenon.so'}:/nowhere/my_op.so"
    result = machine.check("environment")
    assert result["state"] == "WARN"
    assert "TENON_PLUGINS names /nowhere/my_op.so, which does not exist" in result["reason"]


def test_another_variable(machine: Machine) -> None:
    machine.env["TENON_FOO"] = "1"
    result = machine.check("environment")
    assert result["reason"] == "nothing reads TENON_FOO" and result["fix"] == "unset TENON_FOO"


def test_a_compiler_that_makes_nothing(machine: Machine) -> None:
    machine.env["TENON_CC"] = str(machine.file("bin/cc", "#!/bin/sh\necho cc 1.0\n", 0o755))
    assert machine.check("compiler")["state"] == "PASS"
    result = machine.check("formula_cpu")
    assert result["state"] == "WARN" and "makes nothing that runs here" in result["reason"] and result["fix"]


def test_a_compiler_that_hangs(machine: Machine) -> None:
    machine.env["TENON_CC"] = str(machine.file("bin/cc", "#!/bin/sh\nexec sleep 1000\n", 0o755))
    result = machine.check("formula_cpu", "--timeout", "2")
    assert result["state"] == "FAIL" and "did not end within 2 s" in result["observed"]


ENDINGS = {
    "abort();": "was ended by signal 6 (Aborted)",
    "for (;;) pause();": "did not end within 1.8 s",
    "_exit(3);": "ended with status 3",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_operator_that_ends_its_process(machine: Machine, ending: str) -> None:
    source = """#include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        __attribute__((constructor)) static void end(int n, char **words) {
            if (n > 1 && strcmp(words[1], "check") == 0) { ENDING }
        }"""
    machine.env["LD_PRELOAD"] = str(machine.library("end.so", source.replace("ENDING", ending)))
    result = machine.check("operator_cpu", "--timeout", "2")
    assert result["state"] == "FAIL" and ENDINGS[ending] in result["observed"]
    assert result["fix"].startswith("tenon check softmax --quick")


def nvcc(machine: Machine, version: str, gcc: int) -> None:
    machine.file("cuda/bin/nvcc", f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.1'\n", 0o755)
    limits = f"#if defined(__GNUC__)\n#if __GNUC__ > {gcc}\n#error\n#endif\n#endif\n#if (__clang_major__ >= 21) || 0\n"
    machine.file("cuda/include/crt/host_config.h", limits)
    machine.env["CUDA_HOME"] = str(machine.folder / "cuda")


def test_nvcc_newer_than_the_driver(machine: Machine) -> None:
    nvcc(machine, "13.0", 15)
    assert machine.check("nvcc")["state"] == "PASS"
    machine.gpu()
    result = machine.check("nvcc")
    assert result["state"] == "WARN" and "CUDA 13.0" in result["observed"] and "needs driver 580" in result["reason"]
    assert "driver" in result["fix"]
    older = machine.file("root/usr/local/cuda-12/bin/nvcc", "").parents[1]
    machine.env["TENON_DOCTOR_ROOT"] = str(machine.folder / "root")
    assert machine.check("nvcc")["fix"] == f"export CUDA_HOME={older}"


def test_a_compiler_that_nvcc_refuses(machine: Machine) -> None:
    nvcc(machine, "12.4", 13)
    machine.env["PATH"] = str(machine.folder / "bin")
    machine.file("bin/gcc", "#!/bin/sh\necho 'gcc (Debian 14.2.0-19) 14.2.0'\n", 0o755)
    result = machine.check("host_compiler")
    assert (
        result["state"] == "WARN" and "nvcc refuses gcc 14" in result["reason"] and "gcc up to 13" in result["required"]
    )
    assert result["fix"].startswith("export NVCC_CCBIN=g++-13")
    machine.env["NVCC_CCBIN"] = str(machine.file("bin/clang", "#!/bin/sh\necho 'Debian clang version 20.1.2'\n", 0o755))
    result = machine.check("host_compiler")
    assert result["state"] == "PASS" and "clang 20" in result["observed"] and "clang up to 20" in result["required"]


# ---- frameworks ----------------------------------------------------------------------------------------------------

BROKEN = {
    "raises": ("raise ImportError('libcudart.so.12: cannot open shared object file')", "libcudart.so.12: cannot open"),
    "crashes": ("import os; os.abort()", "import torch was ended by signal 6 (Aborted)"),
    "exits": ("import sys; sys.exit(7)", "ended with status 7"),
    "leaves": ("import sys; sys.exit(0)", "ended the process while it was imported"),
    "says strange things": ("print('tenon.doctor: what?'); import sys; sys.exit(0)", "ended the process"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_framework(machine: Machine, how: str) -> None:
    source, reason = BROKEN[how]
    machine.package("torch", source)
    result = machine.check("torch", python=True)
    assert result["state"] == "FAIL" and reason in result["reason"]
    assert result["fix"] == f"{sys.executable} -m pip install --force-reinstall torch"


def test_a_framework_that_hangs(machine: Machine) -> None:
    machine.package("torch", "import time; time.sleep(1000)")
    result = machine.check("torch", "--timeout", "2", python=True)
    assert result["state"] == "FAIL" and "import torch did not end within 2 s" in result["reason"]
    assert result["fix"].startswith(f'{sys.executable} -c "import torch"')


@pytest.mark.parametrize(("name", "version"), [("torch", "2.4.0"), ("onnxruntime", "1.9.0")])
def test_a_framework_that_is_too_old(machine: Machine, name: str, version: str) -> None:
    machine.package(name, f'__version__ = "{version}"')
    result = machine.check(name, python=True)
    assert result["state"] == "FAIL" and f"{name} {version}, " in result["observed"]
    assert result["fix"] == f"{sys.executable} -m pip install --upgrade {name}"


def test_a_framework_for_another_cuda(machine: Machine) -> None:
    machine.gpu()
    machine.framework("jax", 'import types; __version__ = "1"; version = types.SimpleNamespace(cuda="13.0")')
    result = machine.check("jax", python=True)
    assert result["state"] == "WARN" and "built for CUDA 13.0, the driver is for CUDA 12" in result["reason"]
    machine.framework("jax", 'import types; __version__ = "1"; version = types.SimpleNamespace(cuda=None)')
    assert "built for the CPU alone" in machine.check("jax", python=True)["reason"]
