"""The virtual environments that libraries are measured in, kept in build/bench/<name>.

    python bench/harness/environments.py tensorflow     prints the path of its interpreter

Standard library only. Libraries share an environment where their requirements allow it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "bench"

TENSORFLOW = "tensorflow-cpu" if platform.machine() == "x86_64" else "tensorflow"
ENVIRONMENTS = {
    "tensorflow": (
        "yogadl==0.1.4",
        "lmdb==1.7.5",
        f"{TENSORFLOW}==2.21.0",
        "bagz==0.3.8",
        "array-record==0.8.6",
        "matplotlib",
    ),
    # torch and CUDA come along: 6 GB. They and `datasets` want different versions of the hub.
    "torch": ("mosaicml-streaming==0.13.0", "litdata==0.2.76"),
    "arrow": ("datasets==5.2.0",),
}
# Where ydl is measured.
WITH_YDL = ("tensorflow",)


def ensure(name: str) -> str:
    """Makes the environment where it is not there yet, with the current ydl; its interpreter."""
    # That of .venv's base, so that the environment does not hang on .venv.
    base = os.path.realpath(sys.executable)
    directory = OUT / name
    python = directory / "bin" / "python"
    requirements = ENVIRONMENTS[name]
    made = directory / ".made"
    content = "\n".join((base, *requirements)) + "\n"
    if not made.exists() or made.read_text() != content:
        print(f"making {directory.relative_to(ROOT)} with {', '.join(requirements)}", flush=True)
        OUT.mkdir(parents=True, exist_ok=True)
        subprocess.run([base, "-m", "venv", "--clear", str(directory)], check=True)
        _pip(python, "install", *requirements)
        made.write_text(content)
    if name in WITH_YDL:
        _install_ydl(python, directory / ".ydl")
    return str(python)


def _install_ydl(python: Path, installed: Path) -> None:
    """As a user gets it: a wheel of this tree, beside the other libraries."""
    digest = _tree_digest()
    if installed.exists() and installed.read_text() == digest:
        return
    print("building a wheel of ydl", flush=True)
    wheels = OUT / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    _pip(python, "wheel", "--no-deps", "-w", str(wheels), str(ROOT))
    (wheel,) = map(str, wheels.glob("*.whl"))
    _pip(python, "install", "--force-reinstall", "--no-deps", wheel)
    _pip(python, "install", wheel)  # what it requires, where that is not there yet
    installed.write_text(digest)


def _tree_digest() -> str:
    """Of all that the wheel is made from."""
    digest = hashlib.sha256()
    patterns = ["setup.py", "pyproject.toml", "csrc/*/*.[ch]", "ydl/**/*.py"]
    for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern)):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _pip(python: Path, *arguments: str) -> None:
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-qq"]
    subprocess.run([*pip, *arguments], check=True)


if __name__ == "__main__":
    # Only the path goes to standard output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(ensure(sys.argv[1]), file=answers)
