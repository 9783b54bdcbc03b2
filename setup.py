"""The C extensions of ydl; all other metadata is in pyproject.toml.

Why the licence stands here: setuptools 61 knows `license` in pyproject.toml only as a table, and
current setuptools only as a string. A keyword of setup() is read alike by both.
"""

import os
import subprocess
import sys
import sysconfig
from glob import glob
from typing import NamedTuple

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import SetupError


class Need(NamedTuple):
    """A header that an extension is compiled with, and the packages that bring it."""

    what: str
    program: str  # compiles exactly where the header is there and new enough
    debian: str
    fedora: str


PYTHON_H = Need(
    "the C headers of the running Python (Python.h)",
    "#include <Python.h>\n",
    "python3-dev",
    "python3-devel",
)
XXHASH_H = Need(
    "xxhash.h of xxHash 0.8 or newer",
    "#include <xxhash.h>\n#if XXH_VERSION_NUMBER < 800\n#error too old\n#endif\n",
    "libxxhash-dev",
    "xxhash-devel",
)


def c_extension(name, folders, needs, libraries=()):
    """An extension of all C files of these folders of csrc/.

    The folders are read at build time, so that a new file needs no entry in a list; sorted, so
    that the same tree gives the same binary.
    """
    extension = Extension(
        name,
        sources=[path for folder in folders for path in sorted(glob(f"csrc/{folder}/*.c"))],
        depends=sorted(glob("csrc/*/*.h")),
        include_dirs=["csrc"],
        libraries=list(libraries),
        define_macros=[
            ("_GNU_SOURCE", None),
            # Built against NumPy >= 2.0, loaded by 1.22 and everything later.
            ("NPY_TARGET_VERSION", "NPY_1_22_API_VERSION"),
            ("NPY_NO_DEPRECATED_API", "NPY_1_22_API_VERSION"),
        ],
        # Hidden by default: PyInit_* asks for its own visibility and stays the only export.
        extra_compile_args=["-std=c11", "-O3", "-fvisibility=hidden", "-Wall", "-pthread"],
        extra_link_args=["-pthread"],
    )
    extension.needs = needs
    return extension


EXTENSIONS = [
    c_extension(
        "ydl._core", ["base", "record", "order", "store", "batch", "py"], [PYTHON_H, XXHASH_H]
    ),
    # No Python module: a library that TensorFlow loads. It knows neither's headers.
    c_extension("ydl._tf_op", ["tf"], [], libraries=["dl"]),
]


class BuildExt(build_ext):
    """Says in one sentence what is missing, before a compiler says it in a hundred lines."""

    def build_extensions(self):
        if not sys.platform.startswith("linux"):
            raise SetupError(f"ydl runs on Linux only, and this is {sys.platform}.")
        if sys.byteorder != "little":
            raise SetupError(
                "ydl runs on little-endian machines only: its files are mapped, not converted."
            )
        import numpy  # here, since reading the metadata must not need it

        # As system headers: warnings in them are not ours to mend.
        system = [numpy.get_include(), *self._python_include_dirs()]
        for extension in self.extensions:
            extension.extra_compile_args += [f"-isystem{path}" for path in system]
            # For CI and `make`, never for users: another compiler warns about other things.
            if os.environ.get("YDL_WERROR") == "1":
                # -Wunused-result: some Pythons' own flags switch it off.
                extension.extra_compile_args += ["-Wextra", "-Wconversion", "-Wunused-result"]
                extension.extra_compile_args += ["-Werror"]
            for need in extension.needs:
                self._check(need, extension)
        super().build_extensions()

    def _python_include_dirs(self):
        paths = sysconfig.get_paths()
        return dict.fromkeys((paths["include"], paths["platinclude"]))

    def _check(self, need, extension):
        command = [
            *self.compiler.compiler_so,
            *(f"-I{path}" for path in [*self.include_dirs, *extension.include_dirs]),
            *(flag for flag in extension.extra_compile_args if flag.startswith("-isystem")),
            *("-fsyntax-only", "-xc", "-"),
        ]
        try:
            done = subprocess.run(
                command,
                input=need.program,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        except FileNotFoundError:
            raise SetupError(
                f"ydl needs a C compiler, and {command[0]} is not there: "
                "apt-get install gcc libc6-dev (Debian) or dnf install gcc (Fedora)."
            ) from None
        if done.returncode != 0:
            raise SetupError(
                f"{extension.name} needs {need.what}, which {command[0]} does not find: "
                f"apt-get install {need.debian} (Debian) or dnf install {need.fedora} (Fedora)."
            )


setup(license="Apache-2.0", ext_modules=EXTENSIONS, cmdclass={"build_ext": BuildExt})
