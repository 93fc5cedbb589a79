"""Device code for a release:  tools/release_cubins.py [--to FOLDER] [--arch 90a,ptx75] [--nvrtc PATH] [--quick] [UNIT]

Compiles every .cu of src with NVRTC into FOLDER/UNIT.ARCH.cubin.xz and FOLDER/UNIT.ptxARCH.ptx.xz,
which `cmake -DTENON_CUBINS=FOLDER` embeds as they are. NVRTC 12 (from PyPI) makes code that drivers of CUDA 12 and 13
both take. Needs no GPU and no CUDA installation; what has not changed since the last time is not compiled again.
`make release-cubins`.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import lzma
import os
import re
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARCHS = "75,80,86,89,90a,100,120,ptx75"
OPTIONS = ["-std=c++17", "--fmad=true"]
QUICK, QUICK_ARCH = ["--Ofast-compile=max"], "ptx75"
PACKAGE = "nvidia-cuda-nvrtc-cu12"
NOTES = "made.json"  # in the folder: what each file was made from


@dataclass(frozen=True)
class Job:
    """One file for one architecture."""

    source: Path
    arch: str  # "90a", "ptx75"
    to: Path
    quick: bool

    @property
    def is_ptx(self) -> bool:
        return self.arch.startswith("ptx")

    @property
    def target(self) -> str:
        return f"compute_{self.arch[3:]}" if self.is_ptx else f"sm_{self.arch}"

    def options(self) -> list[str]:
        folders = (self.source.parent, ROOT / "src")
        quick = QUICK if self.quick else []
        return [f"--gpu-architecture={self.target}", *OPTIONS, *quick, *(f"-I{folder}" for folder in folders)]


# ---- NVRTC -----------------------------------------------------------------------------------------------------------


def find_nvrtc() -> Path | None:
    """The newest NVRTC 12 among the packages of this Python."""
    found = [library for folder in sys.path for library in Path(folder).glob("nvidia/*/lib/libnvrtc.so.12*")]
    return max(found, key=lambda library: version_of(str(library)), default=None)


def open_nvrtc(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise SystemExit(f"release_cubins: {path} cannot be opened: {error}") from None


def version_of(path: str) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    open_nvrtc(path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


class Program:
    """A source file on its way through NVRTC."""

    def __init__(self, nvrtc: ctypes.CDLL, source: Path) -> None:
        self.nvrtc = nvrtc
        self.handle = ctypes.c_void_p()
        name = os.path.relpath(source, ROOT).encode()
        self.check(nvrtc.nvrtcCreateProgram(ctypes.byref(self.handle), source.read_bytes(), name, 0, None, None))

    def __del__(self) -> None:
        self.nvrtc.nvrtcDestroyProgram(ctypes.byref(self.handle))

    def check(self, status: int) -> None:
        if status:
            self.nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise RuntimeError(self.nvrtc.nvrtcGetErrorString(status).decode())

    def get(self, what: str) -> bytes:
        """nvrtcGetPTX, nvrtcGetCUBIN, nvrtcGetProgramLog: each has a function for its size."""
        size = ctypes.c_size_t()
        self.check(getattr(self.nvrtc, f"nvrtcGet{what}Size")(self.handle, ctypes.byref(size)))
        memory = ctypes.create_string_buffer(size.value)
        self.check(getattr(self.nvrtc, f"nvrtcGet{what}")(self.handle, memory))
        return memory.raw

    def compile(self, options: list[str]) -> tuple[bool, str]:
        """Whether it went well, and what the compiler says."""
        texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = self.nvrtc.nvrtcCompileProgram(self.handle, len(options), texts)
        said = self.get("ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
        if status and not said:
            self.nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
            said = self.nvrtc.nvrtcGetErrorString(status).decode()
        return status == 0, said


def compile_one(job: Job, nvrtc: str) -> tuple[bool, str, float]:
    """In a process of its own: NVRTC does one thing at a time."""
    begin = time.monotonic()
    program = Program(open_nvrtc(nvrtc), job.source)
    good, said = program.compile(job.options())
    if good:
        code = program.get("PTX" if job.is_ptx else "CUBIN")
        part = job.to.with_suffix(".part")
        whole = code.rstrip(b"\0") + b"\0" if job.is_ptx else code  # the driver reads PTX up to its 0
        part.write_bytes(lzma.compress(whole, check=lzma.CHECK_NONE))  # src/cuda/driver/unpack.c reads it
        part.replace(job.to)
    return good, said, time.monotonic() - begin


# ---- what there is to do ---------------------------------------------------------------------------------------------


def included(source: Path, seen: set[Path]) -> set[Path]:
    """The file and every header of ours that it includes."""
    if source not in seen:
        seen.add(source)
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', source.read_text(), re.MULTILINE):
            for folder in (source.parent, ROOT / "src"):
                if (folder / name).is_file():
                    included((folder / name).resolve(), seen)
                    break
    return seen


def digest(job: Job, version: str) -> str:
    """Everything that the result depends on."""
    told = hashlib.sha256(f"{version} {job.target} {OPTIONS} {job.quick}".encode())
    for file in sorted(included(job.source, set())):
        told.update(file.read_bytes())
    return told.hexdigest()


def find_sources(units: list[str]) -> list[Path]:
    found = {f.stem: f for f in sorted((ROOT / "src").rglob("*.cu"))}
    if not units:
        return list(found.values())
    sources = []
    for unit in units:
        source = Path(unit).resolve() if unit.endswith(".cu") else found.get(unit)
        if source is None or not source.is_file():
            raise SystemExit(f"release_cubins: there is no {unit}; there are {', '.join(found) or 'none'}")
        sources.append(source)
    return sources


def read_archs(text: str) -> list[str]:
    archs = [arch.strip() for arch in text.split(",") if arch.strip()]
    for arch in archs:
        if not re.fullmatch(r"[0-9]+a?|ptx[0-9]+", arch):
            raise SystemExit(f"release_cubins: --arch {arch}: expected something like 90, 90a or ptx75")
    return archs


def read_notes(folder: Path) -> dict[str, str]:
    try:
        notes: dict[str, str] = json.loads((folder / NOTES).read_text())
    except (OSError, ValueError):
        return {}
    return notes


def remove_others(folder: Path, jobs: list[Job]) -> None:
    """CMake takes every file of the folder: units and architectures of earlier times may not stay."""
    wanted = {job.to.name for job in jobs}
    for file in [*folder.glob("*.cubin"), *folder.glob("*.ptx"), *folder.glob("*.xz"), *folder.glob("*.part")]:
        if file.name not in wanted:
            file.unlink()


# ---- doing it --------------------------------------------------------------------------------------------------------


def run(jobs: list[Job], nvrtc: str, processes: int, done: dict[Job, str], notes: dict[str, str]) -> int:
    """Compiles, says how it goes, and returns how many failed. done: the digest of each job."""
    failed = 0
    width = len(str(len(jobs)))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: dict[Future[tuple[bool, str, float]], Job] = {pool.submit(compile_one, j, nvrtc): j for j in jobs}
        for count, future in enumerate(as_completed(running), 1):
            job = running[future]
            good, said, seconds = future.result()
            print(
                f"[{count:{width}}/{len(jobs)}] {job.to.name:<32} {'' if good else 'FAILED '}{seconds:.1f} s",
                flush=True,
            )
            if said:
                print(said, file=sys.stderr, flush=True)
            if good:
                notes[job.to.name] = done[job]
            failed += not good
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "units", nargs="*", metavar="UNIT", help="softmax, or the path of a .cu; without it all of them"
    )
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="build/release-cubins, or build/quick-cubins")
    parser.add_argument("--arch", help=f"architectures ({ARCHS}; with --quick {QUICK_ARCH})")
    parser.add_argument("--nvrtc", metavar="PATH", help=f"this libnvrtc.so, not the newest 12 of {PACKAGE}")
    parser.add_argument("--quick", action="store_true", help="slow code, fast: to see that it compiles")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (all cores)")
    options = parser.parse_args()
    nvrtc = options.nvrtc or find_nvrtc()
    if not nvrtc:
        print(f"release_cubins: there is no NVRTC 12 for {sys.executable}:", file=sys.stderr)
        print(f"    {sys.executable} -m pip install {PACKAGE}", file=sys.stderr)
        return 1
    version = "NVRTC {}.{}".format(*version_of(str(nvrtc)))
    folder: Path = (options.to or ROOT / "build" / ("quick-cubins" if options.quick else "release-cubins")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [
        Job(source, arch, folder / f"{source.stem}.{arch}.{kind}.xz", options.quick)
        for source in find_sources(options.units)
        for arch in read_archs(options.arch or (QUICK_ARCH if options.quick else ARCHS))
        for kind in ("ptx" if arch.startswith("ptx") else "cubin",)
    ]
    remove_others(folder, jobs)
    notes = {name: made for name, made in read_notes(folder).items() if (folder / name).is_file()}
    digests = {job: digest(job, version) for job in jobs}
    stale = [job for job in jobs if notes.get(job.to.name) != digests[job]]
    # The longest first: they would be waited for at the end.
    stale.sort(key=lambda job: -job.source.stat().st_size)
    print(f"{version}: {len(stale)} of {len(jobs)} files to make in {os.path.relpath(folder)}", flush=True)
    try:
        failed = run(stale, str(nvrtc), max(1, options.jobs), digests, notes) if stale else 0
    finally:
        (folder / NOTES).write_text(json.dumps(notes, indent=1, sort_keys=True) + "\n")
    if failed:
        print(f"release_cubins: {failed} of {len(stale)} failed", file=sys.stderr)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
