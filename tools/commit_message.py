"""What a commit message looks like:  tools/commit_message.py FILE   tools/commit_message.py --range main..HEAD

The subject has at most 72 characters, and an empty line follows it. With FILE, checks the message that git is about to
commit (.pre-commit-config.yaml); with --range, every commit that the range adds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

MOST = 72


def faults(message: str) -> list[str]:
    """What is wrong with a message. Lines that git leaves out, those that begin with #, are left out here too."""
    lines = [line.rstrip() for line in message.splitlines() if not line.startswith("#")]
    while lines and not lines[0]:
        lines.pop(0)
    if not lines:
        return []  # git itself refuses an empty message
    found = []
    if len(lines[0]) > MOST:
        found.append(f"the subject has {len(lines[0])} characters, {MOST} are the most: {lines[0]}")
    if len(lines) > 1 and lines[1]:
        found.append(f"the line below the subject is not empty: {lines[1]}")
    return found


def messages(commits: str) -> dict[str, str]:
    """The messages of a range, by abbreviated commit. Merges are left out: their subjects are written by tools."""
    command = ["git", "log", "--no-merges", "--format=%h%n%B%x00", commits]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = (text.lstrip("\n").partition("\n") for text in said.split("\0"))
    return {commit: message for commit, _, message in rows if commit}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE")
    parser.add_argument("--range", metavar="COMMITS")
    given = parser.parse_args()
    if (given.file is None) == (given.range is None):
        parser.error("give a FILE or a --range")
    told = {"message": given.file.read_text()} if given.file else messages(given.range)
    lines = [f"{name}: {fault}" for name, message in told.items() for fault in faults(message)]
    print("\n".join(lines), end="\n" if lines else "", file=sys.stderr)
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
