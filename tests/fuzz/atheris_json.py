"""Fuzzes the parsers of stored JSON with atheris (`make fuzz-python`).

python tests/fuzz/atheris_json.py manifest|schema [libFuzzer's options and folders]
"""

from __future__ import annotations

import os
import sys

import atheris

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

with atheris.instrument_imports(include=["ydl", "fuzz_python", "json"]):
    from fuzz_python import CHECKS


def main() -> None:
    check = CHECKS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
