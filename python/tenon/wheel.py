"""Wheels of operators: the build backend of projects that ``tenon new --python`` writes.

    [build-system]
    requires = ["libtenon"]
    build-backend = "tenon.wheel"

``pip wheel .`` then builds the folder's .c and .cu files as ``tenon build`` does, and packs what comes out with the
Python package beside them. The operator runs in every version of Python and of every framework, so the wheel is
``py3-none``. Only the standard library is needed. (PEP 517; ``pip install -e .`` works too, PEP 660.)
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

__all__ = ["build_editable", "build_sdist", "build_wheel"]

# Libraries that every Linux has under these names: a file that needs no others runs wherever its glibc is old enough.
_USUAL = {b"libc.so.6", b"libm.so.6", b"libdl.so.2", b"libpthread.so.0", b"libgcc_s.so.1"}
_OLDEST = 17  # of glibc 2.17, which manylinux counts from


def _project() -> dict[str, Any]:
    """[project] of pyproject.toml in this folder, with what it must have."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

    with open("pyproject.toml", "rb") as file:
        about: dict[str, Any] = tomllib.load(file).get("project", {})
    for key in ("name", "version"):
        if not isinstance(about.get(key), str):
            raise SystemExit(f"tenon.wheel: pyproject.toml has no [project] {key}")
    return about


def _file_name(about: dict[str, Any]) -> str:
    name = re.sub(r"[-_.]+", "_", about["name"]).lower()
    return f"{name}-{about['version']}"


def _metadata(about: dict[str, Any]) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {about['name']}", f"Version: {about['version']}"]
    lines += [f"Summary: {about['description']}"] if "description" in about else []
    lines += [f"Requires-Python: {about['requires-python']}"] if "requires-python" in about else []
    lines += [f"Requires-Dist: {wanted}" for wanted in about.get("dependencies", [])]
    readme = about.get("readme")
    if not isinstance(readme, str):
        return "\n".join([*lines, ""])
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", Path(readme).read_text(encoding="utf-8")])


def _package() -> Path:
    """The folder with an __init__.py; there is one."""
    found = sorted(path.parent for path in Path().glob("*/__init__.py") if path.parent.name not in ("tests", "test"))
    if len(found) != 1:
        raise SystemExit(f"tenon.wheel: one folder with an __init__.py is expected, there are {len(found)}")
    return found[0]


def _build() -> Path:
    """What `tenon build` makes of this folder."""
    before = {path: path.stat().st_mtime_ns for path in Path().glob("*.tenon.so")}
    subprocess.run([sys.executable, "-m", "tenon", "build", "."], check=True)
    made = [path for path in Path().glob("*.tenon.so") if before.get(path) != path.stat().st_mtime_ns]
    if len(made) != 1:
        raise SystemExit("tenon.wheel: `tenon build` has written no .tenon.so here")
    return made[0]


def _tag(built: Path) -> str:
    """py3-none, with the oldest glibc that the file runs with."""
    data = built.read_bytes()
    machine = platform.machine()
    needed = set(re.findall(rb"\0(lib[\w+.-]+\.so[.\d]*)(?=\0)", data))
    if not needed <= _USUAL:
        return f"py3-none-linux_{machine}"
    minors = [int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)", data)]
    return f"py3-none-manylinux_2_{max([_OLDEST, *minors])}_{machine}"


def _write(to: str, about: dict[str, Any], tag: str, files: dict[str, bytes]) -> str:
    """A wheel: a zip archive with a list of its files."""
    info = f"{_file_name(about)}.dist-info"
    files[f"{info}/METADATA"] = _metadata(about).encode()
    text = f"Wheel-Version: 1.0\nGenerator: tenon.wheel\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/WHEEL"] = text.encode()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = f"{_file_name(about)}-{tag}.whl"
    with zipfile.ZipFile(Path(to, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same files give the same bytes
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    about, package, built = _project(), _package(), _build()
    paths = [path for path in sorted(package.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    files = {path.as_posix(): path.read_bytes() for path in paths if not path.name.endswith(".tenon.so")}
    files[f"{package.name}/{built.name}"] = built.read_bytes()
    return _write(wheel_directory, about, _tag(built), files)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """The package stays where it is: `tenon build` renews the operator."""
    about, package = _project(), _package()
    _build()
    files = {f"{package.name}.pth": f"{os.getcwd()}\n".encode()}
    return _write(wheel_directory, about, "py3-none-any", files)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    about = _project()
    name = _file_name(about)

    def keep(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(entry.name).parts[1:]
        hidden = any(part.startswith(".") or part in ("__pycache__", "dist", "build") for part in parts)
        return None if hidden or entry.name.endswith((".tenon.so", ".whl")) else entry

    with tarfile.open(Path(sdist_directory, f"{name}.tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.add(".", name, filter=keep)
    return f"{name}.tar.gz"
