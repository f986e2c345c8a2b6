"""Writes the tables of docs/compression.md: the rest of the page stays as it is.

python tests/compressor_document.py [costs|losses]
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

import compressor_table
import compressor_training

PAGE = Path(__file__).parents[1] / "docs" / "compression.md"
MAKERS = {"costs": compressor_table.main, "losses": compressor_training.main}


def main() -> None:
    """Measure and write."""
    wanted = sys.argv[1:] or list(MAKERS)
    sys.argv[1:] = []
    for name in wanted:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            MAKERS[name]()
        # From the mark to the next heading, or the end.
        after = re.compile(rf"(<!-- table: {name} -->\n).*?(?=\n## |\Z)", re.DOTALL)
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(after.sub(lambda found: f"{found[1]}\n{printed.getvalue().rstrip()}\n", text), encoding="utf-8")


if __name__ == "__main__":
    main()
