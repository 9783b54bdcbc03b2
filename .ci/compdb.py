"""Writes compile_commands.json: compdb.py COMPILER FLAG... -- SOURCE...

All sources get the same flags; csrc/py also the headers of Python and NumPy, tests/fuzz what
libFuzzer's build defines.
"""

import json
import sys
import sysconfig
from pathlib import Path

import numpy

split = sys.argv.index("--")
command, sources = sys.argv[1:split], sys.argv[split + 1 :]
more = {
    "csrc/py": [
        f"-isystem{sysconfig.get_path('include')}",
        f"-isystem{numpy.get_include()}",
        "-DNPY_TARGET_VERSION=NPY_1_22_API_VERSION",
        "-DNPY_NO_DEPRECATED_API=NPY_1_22_API_VERSION",
    ],
    "tests/fuzz": ["-DYDL_LIBFUZZER"],
}
entries = [
    {
        "directory": str(Path.cwd()),
        "file": source,
        "arguments": [*command, *more.get(str(Path(source).parent), []), "-c", source],
    }
    for source in sources
]
Path("compile_commands.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
