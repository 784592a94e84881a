"""`make reference`: writes the generated parts of docs/reference, or with `--check` says which of them are out of date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .pages import generated

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, help="the program `pithead` that is described")
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 if a page is out of date")
    arguments = parser.parse_args()
    old = 0
    for path, text in generated(ROOT, arguments.program.resolve()).items():
        page = ROOT / path
        if page.exists() and page.read_text() == text:
            continue
        old += 1
        print(f"{path} {'is out of date' if arguments.check else 'written'}", file=sys.stderr)
        if not arguments.check:
            page.write_text(text)
    return 1 if arguments.check and old else 0


if __name__ == "__main__":
    sys.exit(main())
