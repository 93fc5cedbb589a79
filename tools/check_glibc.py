"""Which glibc a shared object or program needs:  tools/check_glibc.py FILE … [--most 2.28]

Lists what is newer than --most and fails if there is any. Reads the ELF file itself: no tool is needed.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

MOST = (2, 28)  # what every wheel of PyTorch from 2.10 on needs as well
# What a manylinux system is sure to have.
SYSTEM = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")

DT_NEEDED = 1
SYMBOLS, DYNAMIC, NEEDED_VERSIONS, SYMBOL_VERSIONS = 11, 6, 0x6FFFFFFE, 0x6FFFFFFF
Version = tuple[int, ...]
OTHER: Version = (1000,)


class Elf:
    """The tables of a 64-bit little-endian ELF file that dynamic linking reads."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no 64-bit little-endian ELF file")
        (start,) = struct.unpack_from("<Q", self.data, 40)
        size, count = struct.unpack_from("<HH", self.data, 58)
        # type, offset, size, link to the section with its names
        rows = (struct.unpack_from("<4xI16xQQI", self.data, start + size * i) for i in range(count))
        self.sections = {kind: (offset, length, link) for kind, offset, length, link in rows if kind != 3}
        self.offsets = [struct.unpack_from("<24xQ", self.data, start + size * i)[0] for i in range(count)]

    def text(self, kind: int, at: int) -> str:
        """A name in the section of names that belongs to one of this kind."""
        begin = self.offsets[self.sections[kind][2]] + at
        return self.data[begin : self.data.index(b"\0", begin)].decode()

    def libraries(self) -> list[str]:
        offset, length, _ = self.sections[DYNAMIC]
        entries = struct.iter_unpack("<QQ", self.data[offset : offset + length])
        return [self.text(DYNAMIC, value) for tag, value in entries if tag == DT_NEEDED]

    def versions(self) -> dict[int, str]:
        """The versions that are needed of libraries, by the number that symbols have them under."""
        found = {}
        at, _, _ = self.sections.get(NEEDED_VERSIONS, (0, 0, 0))
        while at:
            count, first, following = struct.unpack_from("<2xH4xII", self.data, at)
            entry = at + first
            for _ in range(count):
                number, name, step = struct.unpack_from("<6xHII", self.data, entry)
                found[number] = self.text(NEEDED_VERSIONS, name)
                entry += step
            at = at + following if following else 0
        return found

    def symbols(self) -> Iterator[tuple[str, str]]:
        """(symbol, version) for all that other libraries have to bring in a certain version."""
        versions = self.versions()
        if not versions:
            return
        offset, length, _ = self.sections[SYMBOL_VERSIONS]
        numbers = struct.unpack_from(f"<{length // 2}H", self.data, offset)
        table, _, _ = self.sections[SYMBOLS]
        for i, number in enumerate(numbers):
            (name,) = struct.unpack_from("<I", self.data, table + 24 * i)
            if number & 0x7FFF in versions:
                yield self.text(SYMBOLS, name), versions[number & 0x7FFF]


def version_of(name: str) -> Version:
    """GLIBC_2.17 as numbers; what is of another library is newer than everything."""
    family, _, numbers = name.partition("_")
    return tuple(int(n) for n in numbers.split(".")) if family == "GLIBC" and numbers[:1].isdigit() else OTHER


def too_new(path: Path, most: Version = MOST) -> list[str]:
    """What keeps the file from running where glibc has this version, a line each."""
    elf = Elf(path)
    found = [f"{name} of {version}" for name, version in elf.symbols() if version_of(version) > most]
    others = [name for name in elf.libraries() if name not in SYSTEM and not name.startswith("libtenon.so.")]
    return sorted(found) + [f"the library {name}" for name in others]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--most", default=".".join(map(str, MOST)), metavar="VERSION")
    given = parser.parse_args()
    failed = False
    for file in given.files:
        versions = {version_of(version) for _, version in Elf(file).symbols()} - {OTHER}
        newest = max(versions, default=(0,))
        print(f"{file}: glibc {'.'.join(map(str, newest))}")
        for line in too_new(file, tuple(int(n) for n in given.most.split("."))):
            print(f"  needs {line}")
            failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
