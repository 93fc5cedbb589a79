"""The command ``tenon``, which is a program beside the library: ``tenon ops``, or ``python -m tenon ops``."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    if sys.argv[1:2] == ["doctor"]:  # which looks at this Python, too
        from tenon import doctor

        sys.exit(doctor.main(sys.argv[2:]))
    try:
        from tenon._lib import lib
    except ImportError as error:
        sys.exit(f"tenon: {error}")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores: `tenon ops | head` ends quietly
    program = os.path.join(os.path.dirname(lib._name), "tenon")
    try:
        os.execv(program, ["tenon", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"tenon: {program}, the program beside the library, cannot be run: {error.strerror}")


if __name__ == "__main__":
    main()
