"""`python -m ydl`: the same as `ydl`."""

from __future__ import annotations

import sys

from ydl.cli import main

if __name__ == "__main__":
    sys.exit(main())
