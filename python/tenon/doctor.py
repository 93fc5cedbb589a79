"""``python -m tenon.doctor``: the checks of ``tenon doctor``, and those of this Python and its frameworks.

The C library runs, prints and counts all of them; the checks here are added to its list. No framework is imported in
this process: each is, with its adapter, in one of its own, which may crash or hang.
"""

from __future__ import annotations

import csv
import ctypes
import importlib.metadata
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple

import tenon
from tenon._origin import NAME, PIP, installed, reinstall, source

try:
    from tenon._lib import lib
except ImportError as error:  # there is none, or it is broken: that is all that can be said
    _no_library = str(error)
else:
    _no_library = ""

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "onnxruntime")
_LEAST_PYTHON = (3, 10)
_PIP = f"{PIP} install"
_MARK = "tenon.doctor: "  # begins lines of a child that are meant for us


class Result(NamedTuple):
    state: str
    observed: str
    required: str = ""
    reason: str = ""
    fix: str = ""


# ---- Python and the package ----------------------------------------------------------------------------------------


def check_python() -> Result:
    observed = f"Python {platform.python_version()}, {sys.executable}"
    observed += ", a virtual environment" if sys.prefix != sys.base_prefix else ""
    required = "Python {}.{} or newer".format(*_LEAST_PYTHON)
    if sys.version_info < _LEAST_PYTHON:
        return Result(
            "FAIL", observed, required, "it is too old", f"python3.12 -m venv env && env/bin/pip install {source()}"
        )
    return Result("PASS", observed, required)


def _copies() -> list[Path]:
    """Packages called tenon that this Python could import, the one that it does first."""
    found = []
    for folder in sys.path:
        package = Path(folder or ".").resolve() / "tenon"
        if (package / "_lib.py").is_file() and package not in found:
            found.append(package)
    return found


def _damaged(package: Path, installed: importlib.metadata.Distribution) -> list[str]:
    """Files that are not what pip installed. Its list is read here: newer Pythons leave out what is missing."""
    bad = []
    for name, digest, _ in csv.reader((installed.read_text("RECORD") or "").splitlines()):
        path = Path(str(installed.locate_file(name))).resolve()
        if not digest.startswith("sha256=") or package not in path.parents:
            continue
        if not path.is_file():
            bad.append(f"{name} is missing")
        elif urlsafe_b64encode(sha256(path.read_bytes()).digest()).rstrip(b"=").decode() != digest[7:]:
            bad.append(f"{name} was changed")
    return bad


def check_package() -> Result:
    own = Path(tenon.__file__).resolve().parent
    required = "one package, as it was installed"
    observed = f"{own}, with {lib._name}"
    if strangers := [found for found in importlib.metadata.distributions(name="tenon") if found.files]:
        reason = f"'tenon' {strangers[0].version} of PyPI is there too: another project, which writes over these files"
        fix = f"{PIP} uninstall tenon && {reinstall()}"
        return Result("FAIL", observed, required, reason, fix)
    others = [str(package) for package in _copies() if package != own]
    if others:
        reason = f"{' and '.join(others)} is another one: which is imported depends on where Python is started"
        return Result("WARN", observed, required, reason, f"{PIP} uninstall {NAME}   # then install one")
    by_pip = installed(own)
    if not by_pip:
        return Result("PASS", f"{observed}, not installed by pip", required)
    damaged = _damaged(own, by_pip)
    if damaged:
        more = f" and {len(damaged) - 3} more" if len(damaged) > 3 else ""
        return Result("FAIL", observed, required, ", ".join(damaged[:3]) + more, reinstall())
    if by_pip.version != tenon.__version__:
        reason = f"the package is of version {by_pip.version}, the library of version {tenon.__version__}"
        return Result("WARN", observed, required, reason, f"unset TENON_LIBRARY; {reinstall()}")
    return Result("PASS", observed, required)


# ---- frameworks ----------------------------------------------------------------------------------------------------


def child(name: str) -> None:
    """What a process of its own does: imports a framework and its adapter, and says how far it got."""

    def say(**what: str) -> None:
        print(f"\n{_MARK}{json.dumps(what)}", flush=True)

    end_with_parent = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(end_with_parent, signal.SIGKILL)
    module = importlib.import_module(name)
    version, file = getattr(module, "__version__", "of unknown version"), getattr(module, "__file__", None)
    say(imported=f"{name} {version}, {file or 'a folder without __init__.py'}")
    if hasattr(getattr(module, "version", None), "cuda"):  # PyTorch's
        say(cuda=module.version.cuda or "none")
    if importlib.util.find_spec(f"tenon.{name}"):
        importlib.import_module(f"tenon.{name}")
        say(adapter=f"tenon.{name}")
    lib.tni_doctor_duplicates.restype = ctypes.c_void_p
    duplicates = lib.tni_doctor_duplicates()
    say(duplicates=ctypes.string_at(duplicates).decode() if duplicates else "", driver=str(lib.tni_doctor_cuda()))


class End(NamedTuple):
    """How a framework's process ended."""

    found: dict[str, str]  # what it has said
    how: str  # "", "late", "signal" or "error"
    text: str


class Child:
    """A framework's process."""

    def __init__(self, name: str) -> None:
        self.begin = time.monotonic()
        self.output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (wait closes it)
        code = f"import sys; sys.path[:] = {sys.path!r}; import tenon.doctor; tenon.doctor.child({name!r})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that all that it starts can be ended with it
        )

    def wait(self, seconds: float) -> End:
        late = False
        try:
            status = self.process.wait(max(0.1, self.begin + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(self.process.pid, signal.SIGKILL)
            status = self.process.wait()
        self.output.seek(0)
        lines = [line for line in self.output.read().decode(errors="replace").splitlines() if line.strip()]
        self.output.close()
        found: dict[str, str] = {}
        for line in lines:
            if line.startswith(_MARK):
                try:
                    found.update(json.loads(line.removeprefix(_MARK)))
                except ValueError:  # somebody else's line
                    continue
        if late:
            return End(found, "late", f"did not end within {seconds:g} s")
        if status < 0:
            return End(found, "signal", f"was ended by signal {-status} ({signal.strsignal(-status)})")
        said = [line.strip() for line in lines if not line.startswith(_MARK)] or [f"ended with status {status}"]
        if not status and "duplicates" not in found:  # what is said last
            return End(found, "error", "ended the process while it was imported")
        return End(found, "error" if status else "", said[-1])


class Frameworks:
    """All that are asked for start together, when the first is looked at."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted = wanted
        self.children: dict[str, Child] = {}

    def check(self, name: str) -> Result:
        if not importlib.util.find_spec(name):
            return Result("SKIP", "not installed")
        if not self.children:
            self.children = {one: Child(one) for one in self.wanted if importlib.util.find_spec(one)}
        return judge(name, self.children[name].wait(_timeout()))


def judge(name: str, end: End) -> Result:
    has_adapter = importlib.util.find_spec(f"tenon.{name}") is not None
    required = f"imports, and tenon.{name} with it" if has_adapter else "imports"
    observed = end.found.get("imported", f"{name}, which does not import")
    if end.how:
        return Result("FAIL", observed, required, *_why(name, end))
    observed += f", {end.found['adapter']} loads" if has_adapter else "; this Tenon has no adapter for it"
    if end.found["duplicates"]:
        reason = f"libraries are there twice: {end.found['duplicates']}"
        fix = "unset LD_PRELOAD LD_LIBRARY_PATH TENON_NVRTC TENON_CUBLASLT"
        return Result("WARN", observed, "one copy of each library", reason, fix)
    built, driver = end.found.get("cuda", ""), int(end.found["driver"])
    index = f"{_PIP} --force-reinstall {name} --index-url https://download.pytorch.org/whl/cu{driver // 1000}"
    if driver and built == "none":
        return Result(
            "WARN", observed, "built for CUDA", "it is built for the CPU alone, and here is a GPU", f"{index}…"
        )
    if driver and built and int(built.partition(".")[0]) > driver // 1000:
        reason = f"it is built for CUDA {built}, the driver is for CUDA {driver // 1000}"
        return Result("WARN", observed, f"CUDA {driver // 1000}", reason, f"{index}…   # or a newer driver")
    return Result("PASS", f"{observed}, CUDA {built}" if built else observed, required)


def _why(name: str, end: End) -> tuple[str, str]:
    """What went wrong with it, and the command that helps."""
    module = f"tenon.{name}" if "imported" in end.found else name
    alone = f'{sys.executable} -c "import {module}"   # shows all of it'
    if end.how in ("late", "signal"):
        end = end._replace(text=f"import {module} {end.text}")
    # What an adapter says of a framework that it cannot use ends with the command.
    command = end.text.rpartition(": ")[2]
    if command.startswith("pip install "):
        return end.text, f"{_PIP} {command.removeprefix('pip install ')}"
    return end.text, f"{_PIP} --force-reinstall {name}" if module == name and end.how != "late" else alone


# ---- in the list of the C library ----------------------------------------------------------------------------------

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_kept: list[object] = []  # what C has pointers to


def _timeout() -> float:
    lib.tni_doctor_timeout.restype = ctypes.c_double
    return float(lib.tni_doctor_timeout())


def add(name: str, what: str, check: Callable[[], Result]) -> None:
    def run(to: int) -> None:
        try:
            result = check()
        except Exception as error:  # a check that is wrong itself must not end the others
            result = Result("FAIL", f"the check itself failed: {type(error).__name__}: {error}")
        lib.tni_doctor_say(ctypes.c_void_p(to), *(text.encode(errors="replace") for text in result))

    callback = _Callback(run)
    _kept.append(callback)
    lib.tni_doctor_add(name.encode(), what.encode(), callback)


def say_no_library(arguments: Sequence[str]) -> int:
    """The library prints what is found. Without one there is one thing to say, in the same form."""
    about = {
        "id": "library",
        "state": "FAIL",
        "observed": _no_library.partition(". ")[0],
        "required": "libtenon.so of this package",
        "reason": "nothing works without it, and no other check can run",
        "fix": "unset TENON_LIBRARY" if os.environ.get("TENON_LIBRARY") else reinstall(),
        "milliseconds": 0,
    }
    if "--json" in arguments:
        counts = {"passed": 0, "warnings": 0, "failed": 1, "skipped": 0, "milliseconds": 0}
        print(json.dumps({"tenon": None, "checks": [about], **counts}))
        return 1
    print(f"FAIL  library         {about['observed']}")
    for name, key in (("required", "required"), ("because", "reason"), ("fix", "fix")):
        print(f"        {name:<13} {about[key]}")
    print("\n0 passed, 0 warnings, 1 failed")
    return 1


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` has read enough
    if _no_library:
        return say_no_library(arguments)
    frameworks = Frameworks([name for name in FRAMEWORKS if name in arguments] or FRAMEWORKS)
    # Where processes that have imported a framework find NVIDIA's libraries.
    lib.tni_library_look_in(os.fsencode(sysconfig.get_path("purelib")))
    add("python", "this Python", check_python)
    add(
        "package",
        "the package tenon: two of them, its library's version, files that were changed",
        check_package,
    )
    for name in FRAMEWORKS:
        what = f"{name}: version, whether it imports, whether its adapter loads"
        add(name, what, partial(frameworks.check, name))
    given = [b"tenon", b"doctor", *(os.fsencode(word) for word in arguments)]
    return int(lib.tni_command(len(given), (ctypes.c_char_p * (len(given) + 1))(*given, None)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
