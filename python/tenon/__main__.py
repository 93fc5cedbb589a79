"""The command ``tenon``, which is a program beside the library: ``tenon ops``, or ``python -m tenon ops``."""

from __future__ import annotations

import os
import sys

from tenon._lib import lib


def main() -> None:
    if sys.argv[1:2] == ["doctor"]:  # which looks at this Python, too
        from tenon import doctor

        sys.exit(doctor.main(sys.argv[2:]))
    os.execv(os.path.join(os.path.dirname(lib._name), "tenon"), ["tenon", *sys.argv[1:]])


if __name__ == "__main__":
    main()
