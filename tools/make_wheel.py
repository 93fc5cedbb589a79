"""The wheel:  tools/make_wheel.py [--to FOLDER] [--arch x86_64|aarch64] …   (`make wheel`; PEP 517: `pip install .`)

Builds the library as `make build` does, with device code for every GPU from sm_75 on (tools/release_cubins.py), and
packs it with the command, the headers and python/tenon. Needs cmake, ninja and a C compiler, and no Python package.
TENON_CUBINS or TENON_CUDA_ARCHS choose other device code, as for `make build`; TENON_CUDA_ARCHS=none leaves it out.
--arch makes the wheel for that architecture, and may be given twice. For another one than this machine's, PyPI's
ziglang compiles (cmake/zig.cmake). Device code is the same for both.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import check_glibc
import follow_doc
import release_cubins
import stubs

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
MOST_BYTES = 30_000_000
LIBRARY = "libtenon.so.0"  # the name that programs are linked with: SOVERSION in CMakeLists.txt
BUILT = (LIBRARY, "libtenon_tensorflow.so", "tenon")  # of build/, into the package
# What -ltenon finds: an archive cannot hold a link, so it is one for the linker.
LINK = ("tenon/libtenon.so", f"INPUT({LIBRARY})\n".encode())
TARGETS = ("libtenon.so", "libtenon_tensorflow.so", "tenon_cli")  # what ninja calls them
HERE = platform.machine()


def say(text: str) -> None:
    print(f"  {text}", flush=True)


# ---- what the project is -------------------------------------------------------------------------------------------


def project() -> dict[str, Any]:
    """[project] of pyproject.toml, with the version, which CMakeLists.txt has."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)["project"]
    version = re.search(r"project\(tenon VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert version is not None
    return {**found, "version": version[1]}


def name_and_version() -> str:
    return "{name}-{version}".format(**project())


def description() -> str:
    """The README for readers who do not have the files that it links to."""
    about = project()
    source = about["urls"]["Source"]
    text = (ROOT / about["readme"]).read_text()
    text = re.sub(r'(!\[[^]]*\]\(|\bsrc="|\bsrcset=")(?!\w+://|#)', rf"\1{source}/raw/main/", text)
    return re.sub(r"((?<!!)\[[^]]*\]\()(?!\w+://|#)", rf"\1{source}/blob/main/", text)


def metadata() -> str:
    about = project()
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {about['name']}",
        f"Version: {about['version']}",
        f"Summary: {about['description']}",
        f"License-Expression: {about['license']}",
        *(f"License-File: {name}" for name in about["license-files"]),
        f"Keywords: {','.join(about['keywords'])}",
        *(f"Project-URL: {name}, {url}" for name, url in about["urls"].items()),
        *(f"Classifier: {text}" for text in about["classifiers"]),
        f"Requires-Python: {about['requires-python']}",
    ]
    for extra, wanted in about["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {text}; extra == "{extra}"' for text in wanted)]
    lines += ["Description-Content-Type: text/markdown", "", description()]
    return "\n".join(lines)


# ---- building ------------------------------------------------------------------------------------------------------


def is_chosen() -> bool:
    """Whether the environment says what device code there shall be."""
    return "TENON_CUBINS" in os.environ or "TENON_CUDA_ARCHS" in os.environ


def device_code() -> dict[str, str]:
    """Settings of tools/build.sh: the release's device code where it can be made, else what the machine has."""
    if is_chosen():
        return {}
    if release_cubins.find_nvrtc():
        subprocess.run([sys.executable, str(ROOT / "tools" / "release_cubins.py")], cwd=ROOT, check=True)
        return {"TENON_CUBINS": "build/release-cubins"}
    say(f"no NVRTC 12 (pip install {release_cubins.PACKAGE}): device code is what nvcc makes, if there is one")
    return {"TENON_CUDA_ARCHS": ""}


def build(machine: str = HERE) -> Path:
    """Builds for an architecture; returns the folder with what was built.

    This machine's build comes first in any case: another one needs programs of it that run here.
    """
    if not shutil.which(os.environ.get("CC", "cc").split()[0]):
        raise SystemExit("tenon: building needs a C compiler (on Debian: apt-get install gcc libc6-dev); a wheel none")
    # What `make test` has left in build/ is not optimised.
    env = {"TENON_QUICK_CUBINS": "OFF", **os.environ, **device_code()}
    for preset in ["release"] if machine == HERE else ["release", machine]:
        subprocess.run(["tools/build.sh", preset, *TARGETS], cwd=ROOT, env=env, check=True)
    return ROOT / "build" if machine == HERE else ROOT / "build" / machine


# ---- packing -------------------------------------------------------------------------------------------------------


def record_row(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


@dataclass
class Wheel:
    """Files by their names in the archive."""

    tag: str
    files: dict[str, bytes] = field(default_factory=dict)
    programs: set[str] = field(default_factory=set)

    def add_about(self) -> None:
        info = f"{name_and_version()}.dist-info"
        about = project()
        self.files[f"{info}/METADATA"] = metadata().encode()
        tool = f"Generator: tenon {about['version']}"
        self.files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\n{tool}\nRoot-Is-Purelib: false\nTag: {self.tag}\n".encode()
        scripts = "".join(f"{name} = {place}\n" for name, place in about["scripts"].items())
        self.files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}".encode()
        for name in about["license-files"]:
            self.files[f"{info}/licenses/{name}"] = (ROOT / name).read_bytes()
        rows = "".join(record_row(name, data) for name, data in self.files.items())
        self.files[f"{info}/RECORD"] = f"{rows}{info}/RECORD,,\n".encode()

    def write(self, folder: Path) -> Path:
        """The same files give the same bytes."""
        self.add_about()
        path = folder / f"{name_and_version()}-{self.tag}.whl"
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, data in self.files.items():
                entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
                entry.external_attr = (0o100755 if name in self.programs else 0o100644) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, data)
        return path


def tag_for(programs: list[Path], machine: str) -> str:
    """manylinux_2_28 where nothing needs a newer glibc; a reason and the plain tag otherwise."""
    newer = sorted({line for file in programs for line in check_glibc.too_new(file)})
    if not newer:
        return "py3-none-manylinux_{}_{}_{}".format(*check_glibc.MOST, machine)
    if machine != HERE:
        raise SystemExit(f"tenon: the wheel for {machine} needs {', '.join(newer)}")
    say(f"this wheel is for systems like this one: it needs {', '.join(newer)}")
    return f"py3-none-linux_{machine}"


def strip(built: Path, to: Path, machine: str) -> list[Path]:
    """Copies of the built files without what only debuggers read. Those that zig links have none of it."""
    for name in BUILT:
        command = ["strip", "-o", str(to / name)] if machine == HERE else ["cp", "-t", str(to)]
        subprocess.run([*command, str(built / name)], check=True)
    return [to / name for name in BUILT]


def package_files() -> dict[str, Path]:
    """python/tenon and the headers, by their names in the archive."""
    found = {}
    for to, folder in (("", "python"), ("tenon/include/", "include"), ("tenon/include/", "build/include")):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.parent.name != "__pycache__":
                found[f"{to}{path.relative_to(ROOT / folder)}"] = path
    return found


def make_wheel(to: Path, machine: str = HERE) -> Path:
    folder = build(machine)
    with tempfile.TemporaryDirectory() as scratch:
        built = strip(folder, Path(scratch), machine)
        wheel = Wheel(tag_for(built, machine))
        wheel.files = {name: path.read_bytes() for name, path in package_files().items()}
        if not all(f"tenon/{framework}/{stubs.NAME}" in wheel.files for framework in stubs.NAMES):
            raise SystemExit(f"tenon: the wheel would lack {stubs.NAME}: tools/stubs.py writes it once build/ is built")
        wheel.files.update({f"tenon/{file.name}": file.read_bytes() for file in built})
        wheel.files[LINK[0]] = LINK[1]
        wheel.programs = {f"tenon/{name}" for name in BUILT}
    path = wheel.write(to)
    size = path.stat().st_size
    say(f"{os.path.relpath(path)}: {size / 1e6:.1f} MB")
    if size > MOST_BYTES:
        raise SystemExit(f"tenon: the wheel has {size} bytes, {MOST_BYTES} are the limit")
    return path


# ---- PEP 517 and 660 -----------------------------------------------------------------------------------------------


def has_cmake() -> bool:
    """One that CMakeLists.txt is content with."""
    if not shutil.which("cmake"):
        return False
    told = subprocess.run(["cmake", "--version"], capture_output=True, text=True).stdout
    version = re.search(r"version (\d+)\.(\d+)", told)
    return version is not None and (int(version[1]), int(version[2])) >= (3, 24)


def get_requires_for_build_wheel(settings: object = None) -> list[str]:
    """Build tools that this machine lacks, and NVRTC."""
    wanted = [] if has_cmake() else ["cmake>=3.24"]
    wanted += [] if shutil.which("ninja") else ["ninja"]
    if not is_chosen():
        wanted += (ROOT / "tools" / "requirements-cubins.txt").read_text().splitlines()
    return wanted


def build_wheel(folder: str, settings: object = None, about: object = None) -> str:
    return make_wheel(Path(folder)).name


def build_editable(folder: str, settings: object = None, about: object = None) -> str:
    """The package stays in python/, the library in build/: `make build` renews it."""
    build()
    wheel = Wheel("py3-none-any", {"libtenon.pth": f"{ROOT / 'python'}\n".encode()})
    return wheel.write(Path(folder)).name


def build_sdist(folder: str, settings: object = None) -> str:
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / name_and_version()
        follow_doc.copy_tree(tree)
        (tree / "PKG-INFO").write_text(metadata())
        name = f"{name_and_version()}.tar.gz"
        with tarfile.open(Path(folder) / name, "w:gz", format=tarfile.PAX_FORMAT) as archive:
            archive.add(tree, tree.name)
    return name


get_requires_for_build_editable = get_requires_for_build_wheel


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=ROOT / "dist", metavar="FOLDER")
    parser.add_argument("--arch", action="append", choices=["aarch64", "x86_64"])
    given = parser.parse_args()
    for machine in given.arch or [HERE]:
        make_wheel(given.to, machine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
