"""The rules that keep the house: who includes whom, what is exported, which calls are banned.

Every rule is a function from (path, text) to complaints, so that it is tried on the tree and also
on snippets that break it: a rule that cannot fail keeps nothing.
"""

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
C_FILES = sorted([*ROOT.glob("csrc/**/*.[ch]"), *ROOT.glob("tests/c/*.[ch]")])
PY_FILES = sorted(ROOT.glob("ydl/**/*.py"))

Rule = Callable[[str, str], Iterator[str]]

# ---- C: what a file may include -----------------------------------------------------------------

MAY_INCLUDE = {
    "base": set(),
    "record": {"base"},
    "order": {"base"},
    "store": {"base"},
    "net": {"base"},
    "coord": {"base"},
    "batch": {"base", "record", "order"},
    "tf": {"base", "record", "order", "batch"},  # for their types: it is linked with none
    "py": {"base", "record", "order", "store", "net", "coord", "batch"},
}

# Headers of other people's libraries, and the only files that may know of them.
ONLY_IN = [
    (r"Python\.h|structmember\.h|numpy/.*", r"csrc/py/.*"),
    (r"curl/.*", r"csrc/net/.*"),
    (r"libwebsockets\.h", r"csrc/coord/(server|client)\.c"),
    (r"openssl/.*", r"csrc/(net|coord)/.*"),
    (r"xxhash\.h", r"csrc/base/hash(_avx2)?\.c"),
]

# Tested as functions: no I/O, no clock, no thread.
PURE = r"csrc/(order/.*|coord/(rwlock|proto)\.[ch]|net/(sign|xml)\.[ch])"
PURE_MAY_INCLUDE = (
    r"(assert|ctype|inttypes|limits|stdarg|stdbool|stddef|stdint|stdio|stdlib|string)\.h"
    r"|openssl/.*"
    r"|(base/(buf|bytes|hash|status)|order/.*|coord/(rwlock|proto)|net/(sign|xml))(\.h)?"
)
IMPURE_CALLS = (
    "open openat creat read pread write pwrite close fopen fdopen fread fwrite fclose fprintf"
    " printf puts putchar perror stat fstat lstat access unlink rename mkdir mmap socket connect"
    " send recv poll select time clock clock_gettime gettimeofday sleep usleep nanosleep getenv"
    " pthread_create pthread_mutex_lock pthread_cond_wait thrd_create random rand"
).split()

# ---- C: calls that nobody makes -----------------------------------------------------------------

BANNED_CALLS = {
    "no bound on what they write": "strcpy strcat stpcpy sprintf vsprintf gets alloca",
    "no error from them": "atoi atol atoll atof",
    "one state for the whole process": "strtok rand srand strerror localtime gmtime ctime asctime",
    "a shell, or the end of the user's process": "system popen exit _exit quick_exit",
    "a race between name and file": "mktemp tmpnam tempnam",
}

MAX_LINES = 600


def without_comments(text: str) -> str:
    """C without comments; strings stay, and so do line numbers."""

    def replace(match: re.Match[str]) -> str:
        token = match.group()
        return token if token[0] in "\"'" else " " + "\n" * token.count("\n")

    return re.sub(
        r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', replace, text, flags=re.S
    )


def without_strings(text: str) -> str:
    return re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', '""', without_comments(text))


def includes(text: str) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', without_comments(text), flags=re.M)


def calls(text: str, names: list[str]) -> list[str]:
    """Calls of these functions; a struct's member or a longer name that ends alike is another."""
    return re.findall(rf"(?<![\w.])(?<!->)({'|'.join(names)})\s*\(", without_strings(text))


def check_folders(path: str, text: str) -> Iterator[str]:
    folder = Path(path).parts[1]
    for include in includes(text):
        other = include.split("/")[0]
        if other in MAY_INCLUDE and other != folder and other not in MAY_INCLUDE.get(folder, set()):
            yield f"csrc/{folder} may not include {include}"


def check_full_names(path: str, text: str) -> Iterator[str]:
    for include in re.findall(r'^\s*#\s*include\s*"([^"]+)"', without_comments(text), flags=re.M):
        if not re.fullmatch(rf"({'|'.join(MAY_INCLUDE)})/\w+\.h", include):
            yield f'"{include}" is not the name of a header below csrc/'


def check_libraries(path: str, text: str) -> Iterator[str]:
    for include in includes(text):
        for header, files in ONLY_IN:
            if re.fullmatch(header, include) and not re.fullmatch(files, path):
                yield f"{include} is only for {files}"


def check_pure(path: str, text: str) -> Iterator[str]:
    if not re.fullmatch(PURE, path):
        return
    for include in includes(text):
        if not re.fullmatch(PURE_MAY_INCLUDE, include):
            yield f"pure, but includes {include}"
    for call in calls(text, IMPURE_CALLS):
        yield f"pure, but calls {call}"


def check_banned_calls(path: str, text: str) -> Iterator[str]:
    for reason, names in BANNED_CALLS.items():
        for call in calls(text, names.split()):
            yield f"calls {call}: {reason}"


def check_structs(path: str, text: str) -> Iterator[str]:
    if re.search(r"\btypedef\s+(struct|union)\b", without_strings(text)):
        yield "a struct is called struct ydl_…, without a typedef"


def check_types(path: str, text: str) -> Iterator[str]:
    """Heap types and module state only: static ones outlive an interpreter."""
    if re.search(r"\bstatic\s+PyTypeObject\b(?!\s*\*)", without_strings(text)):
        yield "a static type"
    for call in calls(text, ["PyModule_Create", "PyState_FindModule"]):
        yield f"calls {call}: not multi-phase initialisation"


def check_length(path: str, text: str) -> Iterator[str]:
    lines = text.count("\n")
    if lines > MAX_LINES:
        yield f"{lines} lines, more than {MAX_LINES}: a second concept may be hiding"


# ---- Python -------------------------------------------------------------------------------------

# All of them can run code that a file brings along.
BANNED_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
BANNED_BUILTINS = {"eval", "exec", "compile", "__import__"}


def imported(tree: ast.AST) -> Iterator[str]:
    """Names of the modules that a file imports, by a statement or by importlib."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
        elif isinstance(node, ast.Call) and node.args:
            function = node.func
            name = (
                function.attr
                if isinstance(function, ast.Attribute)
                else getattr(function, "id", "")
            )
            argument = node.args[0]
            if name == "import_module" and isinstance(argument, ast.Constant):
                yield str(argument.value)


def at_run_time(tree: ast.Module) -> ast.Module:
    """The file without its `if TYPE_CHECKING:` blocks, which only a type checker reads."""

    class Remover(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> object:
            self.generic_visit(node)
            return node.orelse if ast.unparse(node.test).endswith("TYPE_CHECKING") else node

    remaining: ast.Module = Remover().visit(tree)
    return remaining


def check_tensorflow(path: str, text: str) -> Iterator[str]:
    if path.startswith("ydl/tensorflow/"):
        return
    for module in imported(at_run_time(ast.parse(text))):
        if module.split(".")[0] in ("tensorflow", "keras"):
            yield f"imports {module}: only ydl/tensorflow/ does"


def check_foreign_code(path: str, text: str) -> Iterator[str]:
    tree = ast.parse(text)
    for module in imported(tree):
        if module.split(".")[0] in BANNED_MODULES:
            yield f"imports {module}, which runs what a file tells it to"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in BANNED_BUILTINS:
            yield f"calls {node.func.id}"
        for keyword in node.keywords:
            if keyword.arg == "allow_pickle" and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                yield "allows NumPy to unpickle"


# ---- the rules on the tree ----------------------------------------------------------------------

C_RULES: list[Rule] = [check_folders, check_full_names, check_libraries, check_pure]
C_RULES += [check_banned_calls, check_structs, check_types, check_length]
PY_RULES: list[Rule] = [check_tensorflow, check_foreign_code, check_length]


def complaints(rule: Rule, files: list[Path]) -> list[str]:
    found = []
    for file in files:
        path = file.relative_to(ROOT).as_posix()
        found += [f"{path}: {text}" for text in rule(path, file.read_text(encoding="utf-8"))]
    return found


@pytest.mark.parametrize("rule", C_RULES, ids=lambda rule: rule.__name__)
def test_c_sources(rule: Rule) -> None:
    files = [file for file in C_FILES if ROOT / "csrc" in file.parents]
    assert len(files) > 30, "the tree moved, and this test no longer sees it"
    assert complaints(rule, files) == []


def test_c_tests_know_no_python() -> None:
    files = [file for file in C_FILES if ROOT / "tests" in file.parents]
    assert files
    assert complaints(check_libraries, files) == []


@pytest.mark.parametrize("rule", PY_RULES, ids=lambda rule: rule.__name__)
def test_python_sources(rule: Rule) -> None:
    assert len(PY_FILES) > 10, "the tree moved, and this test no longer sees it"
    assert complaints(rule, PY_FILES) == []


def test_every_folder_has_its_rule() -> None:
    folders = {path.name for path in (ROOT / "csrc").iterdir() if path.is_dir()}
    assert folders <= set(MAY_INCLUDE)


def test_tests_are_no_package() -> None:
    """So that `import ydl` in a test finds what is installed."""
    assert not list((ROOT / "tests").glob("**/__init__.py"))


# ---- the rules on snippets that break them ------------------------------------------------------

BROKEN = [
    (check_folders, "csrc/base/a.c", '#include "record/part.h"'),
    (check_folders, "csrc/record/a.c", '#include "order/order.h"'),
    (check_folders, "csrc/store/a.h", '# include "record/part.h"'),
    (check_folders, "csrc/batch/a.c", '#include "store/log.h"'),
    (check_folders, "csrc/batch/a.c", '#include "net/transfer.h"'),
    (check_folders, "csrc/net/a.c", "#include <batch/source.h>"),
    (check_folders, "csrc/coord/a.c", '#include "py/module.h"'),
    (check_full_names, "csrc/record/a.c", '#include "part.h"'),
    (check_full_names, "csrc/record/a.c", '#include "../base/io.h"'),
    (check_libraries, "csrc/batch/a.c", "#include <Python.h>"),
    (check_libraries, "csrc/record/a.h", "#include <numpy/arrayobject.h>"),
    (check_libraries, "tests/c/test_a.c", "#include <Python.h>"),
    (check_libraries, "csrc/coord/client.c", "#include <curl/curl.h>"),
    (check_libraries, "csrc/coord/rwlock.c", "#include <libwebsockets.h>"),
    (check_libraries, "csrc/base/io.c", "#include <openssl/sha.h>"),
    (check_libraries, "csrc/record/row.c", "#include <xxhash.h>"),
    (check_pure, "csrc/order/order.c", "#include <unistd.h>"),
    (check_pure, "csrc/order/order.c", '#include "base/clock.h"'),
    (check_pure, "csrc/order/order.h", '#include "base/io.h"'),
    (check_pure, "csrc/coord/rwlock.c", "#include <pthread.h>"),
    (check_pure, "csrc/net/sign.c", "time_t now = time(NULL);"),
    (check_pure, "csrc/net/xml.c", 'FILE *f = fopen ("a", "r");'),
    (check_banned_calls, "csrc/base/a.c", "strcpy(a, b);"),
    (check_banned_calls, "csrc/base/a.c", "n = 1 + atoi (text);"),
    (check_banned_calls, "csrc/py/a.c", "if (!x) exit(1);"),
    (check_banned_calls, "csrc/store/a.c", '/* fine */ sprintf(a, "//"); // not'),
    (check_banned_calls, "csrc/store/a.c", 'puts("it\\"s /* no comment"); system("x"); /* */'),
    (check_structs, "csrc/base/a.h", "typedef  struct ydl_a { int x; } ydl_a;"),
    (check_types, "csrc/py/a.c", "static PyTypeObject Reader = {0};"),
    (check_types, "csrc/py/a.c", "return PyModule_Create(&module);"),
    (check_length, "csrc/base/a.c", "\n" * (MAX_LINES + 1)),
    (check_tensorflow, "ydl/stream.py", "import tensorflow as tf"),
    (check_tensorflow, "ydl/stream.py", "def f():\n    from tensorflow.data import Dataset"),
    (
        check_tensorflow,
        "ydl/storage/lfs.py",
        "import importlib\nimportlib.import_module('tensorflow')",
    ),
    (
        check_tensorflow,
        "ydl/a.py",
        "if TYPE_CHECKING:\n    import os\nelse:\n    import tensorflow",
    ),
    (check_foreign_code, "ydl/a.py", "import os, pickle"),
    (check_foreign_code, "ydl/a.py", "from marshal import loads"),
    (check_foreign_code, "ydl/a.py", "x = eval('1')"),
    (check_foreign_code, "ydl/a.py", "exec(text)"),
    (check_foreign_code, "ydl/a.py", "numpy.load(path, allow_pickle=True)"),
]

SOUND = [
    (check_folders, "csrc/batch/a.c", '#include "record/part.h"\n#include "base/io.h"'),
    (check_folders, "csrc/py/a.c", '#include "store/log.h"'),
    (check_folders, "csrc/base/a.c", '/* as in\n#include "record/part.h"\n*/ // #include "py/a.h"'),
    (check_libraries, "csrc/py/a.c", "#include <Python.h>\n#include <numpy/arrayobject.h>"),
    (check_libraries, "csrc/net/transfer.c", "#include <curl/curl.h>"),
    (
        check_pure,
        "csrc/order/order.c",
        '#include <stdint.h>\n#include "base/status.h"\nreadable(x);',
    ),
    (check_pure, "csrc/base/io.c", "#include <unistd.h>\nread(1, a, n);"),
    (check_banned_calls, "csrc/base/a.c", 'text = "never call system(x)"; /* nor exit(1) */'),
    (
        check_banned_calls,
        "csrc/base/a.c",
        "ops->exit(1); ops.system(x); ydl_rand(); strerror_r(e);",
    ),
    (check_structs, "csrc/base/a.h", "typedef int (*ydl_visit)(struct ydl_a *);"),
    (check_types, "csrc/py/a.c", "static PyTypeObject *find(void);"),
    (check_length, "csrc/base/a.c", "\n" * MAX_LINES),
    (check_tensorflow, "ydl/tensorflow/feed.py", "import tensorflow as tf"),
    (
        check_tensorflow,
        "ydl/a.py",
        "if TYPE_CHECKING:\n    import tensorflow\nimport ydl.tensorflow",
    ),
    (check_foreign_code, "ydl/a.py", "def __reduce__(self):\n    return (f, ())\nre.compile('x')"),
    (check_foreign_code, "ydl/a.py", "numpy.load(path, allow_pickle=False)"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BROKEN)
def test_rule_finds(rule: Rule, path: str, text: str) -> None:
    assert list(rule(path, text))


@pytest.mark.parametrize(("rule", "path", "text"), SOUND)
def test_rule_accepts(rule: Rule, path: str, text: str) -> None:
    assert list(rule(path, text)) == []


def test_every_rule_is_tried() -> None:
    rules = {*C_RULES, *PY_RULES}
    assert {case[0] for case in BROKEN} == rules


# ---- the built modules --------------------------------------------------------------------------


def extension_files() -> list[str]:
    specs = [importlib.util.find_spec(name) for name in ("ydl._core", "ydl._net")]
    return [spec.origin for spec in specs if spec and spec.origin]


def binutils(program: str, *arguments: str) -> str:
    if not shutil.which(program):
        pytest.skip(f"{program} of binutils is not installed")
    return subprocess.run(
        [program, *arguments], check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout


def test_only_the_init_functions_are_exported() -> None:
    assert extension_files()
    for file in extension_files():
        symbols = [
            line.split()[-1] for line in binutils("nm", "-D", "--defined-only", file).splitlines()
        ]
        assert symbols == [f"PyInit_{Path(file).name.split('.')[0]}"]


def test_the_op_exports_nothing_and_needs_neither_tensorflow_nor_the_core() -> None:
    spec = importlib.util.find_spec("ydl._tf_op")
    assert spec and spec.origin
    assert binutils("nm", "-D", "--defined-only", spec.origin) == ""
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", binutils("readelf", "-d", spec.origin)))
    assert {name for name in needed if not name.startswith("ld-linux")} <= {
        "libc.so.6",
        "libdl.so.2",
        "libpthread.so.0",
    }


def test_core_needs_no_library_at_run_time() -> None:
    core = extension_files()[0]
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", binutils("readelf", "-d", core)))
    # libpthread is a part of libc since glibc 2.34; the loader may be named on some machines.
    assert {name for name in needed if not name.startswith("ld-linux")} <= {
        "libc.so.6",
        "libpthread.so.0",
    }
    assert "libc.so.6" in needed


def test_import_is_light() -> None:
    """No TensorFlow, no extension module, no thread: importing ydl costs nothing."""
    program = (
        "import sys, threading, ydl\n"
        "assert 'tensorflow' not in sys.modules and 'ydl._core' not in sys.modules\n"
        "assert threading.active_count() == 1\n"
        "import ydl.storage, ydl.errors\n"
        "assert 'tensorflow' not in sys.modules, 'ydl.storage imports TensorFlow'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
