"""`python -m parbench` is the command `parbench`."""

from __future__ import annotations

import sys

from parbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
