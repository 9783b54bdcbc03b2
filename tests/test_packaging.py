"""What users install: the sdist holds all that building takes, the wheel all that running takes,
and a build that lacks something says what, in one sentence."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import ydl

ROOT = Path(__file__).resolve().parents[1]

needs_build_tools = pytest.mark.skipif(
    importlib.util.find_spec("setuptools") is None or int(np.__version__.split(".")[0]) < 2,
    reason="building ydl without pip's build isolation needs setuptools and NumPy 2 here",
)


def run_in(
    tree: Path, program: str, *arguments: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=tree,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )


def call_backend(tree: Path, call: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """What pip does with a source tree, without its download of the build requirements."""
    program = f"from setuptools import build_meta as backend\nbackend.{call}"
    return run_in(tree, program, **environment)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked: made from a copy, since building writes into the tree."""
    work = tmp_path_factory.mktemp("sdist")
    made_by_us = shutil.ignore_patterns(".*cache", ".git", ".venv", "build", "*.egg-info", "*.so")
    shutil.copytree(ROOT, work / "tree", ignore=made_by_us)
    done = call_backend(work / "tree", f"build_sdist({str(work)!r})")
    assert done.returncode == 0, done.stdout
    with tarfile.open(next(work.glob("ydl-*.tar.gz"))) as archive:
        archive.extractall(work)
    return next(path for path in work.glob("ydl-*") if path.is_dir())


@needs_build_tools
def test_sdist_is_complete(sdist: Path) -> None:
    patterns = [
        "csrc/**/*.[ch]",
        "tests/**/*.[chp]*",
        "ydl/**/*.py*",
        "LICENSE",
        "*.md",
        "Makefile",
    ]
    patterns += ["setup.py", "pyproject.toml", "examples/**/*.py", ".ci/*"]
    for pattern in patterns:
        files = {
            path.relative_to(ROOT)
            for path in ROOT.glob(pattern)
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert files, pattern
        assert {path for path in files if not (sdist / path).is_file()} == set()


@needs_build_tools
def test_wheel_of_the_sdist(sdist: Path, tmp_path: Path) -> None:
    done = call_backend(sdist, f"build_wheel({str(tmp_path)!r})")
    assert done.returncode == 0, done.stdout
    with zipfile.ZipFile(next(tmp_path.glob("ydl-*.whl"))) as archive:
        names = set(archive.namelist())
    modules = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("ydl/**/*.py")}
    assert modules | {"ydl/py.typed", "ydl/_core.pyi"} <= names
    assert any(name.startswith("ydl/_core.") and name.endswith(".so") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"ydl"}, "more than the package"


def pretend_to_lack(header: str, directory: Path) -> Path:
    """A compiler that does not find one header."""
    compiler = directory / "cc"
    compiler.write_text(
        "#!/bin/sh\n"
        "program=$(cat)\n"
        f'case $program in *"{header}"*) echo "fatal error: {header}" >&2; exit 1 ;; esac\n'
        'printf \'%s\\n\' "$program" | gcc "$@"\n'
    )
    compiler.chmod(0o755)
    return compiler


@needs_build_tools
@pytest.mark.parametrize(
    ("header", "debian", "fedora"),
    [("xxhash.h", "libxxhash-dev", "xxhash-devel"), ("Python.h", "python3-dev", "python3-devel")],
)
def test_missing_header(sdist: Path, tmp_path: Path, header: str, debian: str, fedora: str) -> None:
    compiler = pretend_to_lack(header, tmp_path)
    done = call_backend(sdist, f"build_wheel({str(tmp_path)!r})", CC=str(compiler))
    assert done.returncode != 0
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("error: ydl._core needs")
    assert all(name in last for name in (header, debian, fedora))


@needs_build_tools
def test_missing_compiler(sdist: Path, tmp_path: Path) -> None:
    missing = str(tmp_path / "no-compiler")
    done = call_backend(sdist, f"build_wheel({str(tmp_path)!r})", CC=missing)
    assert done.returncode != 0
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("error: ydl needs a C compiler")
    assert missing in last and "gcc" in last


@needs_build_tools
@pytest.mark.parametrize(
    ("pretend", "expected"),
    [
        ("sys.platform = 'freebsd14'", "error: ydl runs on Linux only, and this is freebsd14."),
        ("sys.byteorder = 'big'", "error: ydl runs on little-endian machines only"),
    ],
)
def test_other_machines_are_refused(sdist: Path, pretend: str, expected: str) -> None:
    known = "import sysconfig; sysconfig.get_config_vars()"  # read from a file named by platform
    program = f"import sys\n{known}\n{pretend}\nexec(open('setup.py').read())"
    done = run_in(sdist, program, "build_ext")
    assert done.returncode != 0
    assert done.stdout.strip().splitlines()[-1].startswith(expected)


def test_version_is_that_of_the_package() -> None:
    assert ydl.__version__ == metadata.version("ydl")


def test_metadata_promises() -> None:
    found = metadata.metadata("ydl")
    assert found["Requires-Python"] == ">=3.9"
    assert "Apache-2.0" in (found.get("License"), found.get("License-Expression"))
    required = [text.replace(" ", "") for text in metadata.requires("ydl") or []]
    assert [text for text in required if "extra==" not in text] == ["numpy>=1.22", "tqdm"]
    assert set(found.get_all("Provides-Extra") or []) == {"tf", "test"}


def test_types_are_installed() -> None:
    package = Path(ydl.__file__).parent
    assert (package / "py.typed").is_file()
    assert (package / "_core.pyi").is_file()
