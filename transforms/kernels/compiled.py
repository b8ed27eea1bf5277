"""Compilation of kernels by numba, without the GIL, under the digest of all sources that a kernel is made of.

Numba detects a change of a function's own file, but not of functions that it calls in other files: after an update it
would run old code, and a memo could be wrong. So the key of cached code (``kept_code.py``) includes a digest of all sources that
the function's file imports, directly or not; a change of any of them compiles it again. It is made when the file is
imported: a worker whose sources are replaced while it runs keeps no old code under the digest of the new ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from numba import njit

from transforms.installation import ROOT, own_module
from transforms.kernels.kept_code import KernelCache

_F = TypeVar("_F", bound=Callable[..., Any])

#: The packages with compiled functions and the modules with constants of them; their sources are digested.
_DIGESTED = tuple(map(own_module, (
    "transforms.kernels", "transforms.operators", "transforms.columns.positions", "trainer.tables", "trainer.run.reading.kernels",
    "trainer.run.reading.packing", "trainer.run.batch_files.packing", "warehouse.files.memo_format")))  # fmt: skip
#: The packages of digested modules: what is imported from them may be a module.
_PACKAGES = frozenset({*_DIGESTED, own_module("transforms.columns")})
#: An import at the beginning of a line, as (module, names): ``import ...`` has no module. Comments and escaped ends of lines may be
#: among them. Parsing the whole source takes twenty times as long.
_GAP = rb"(?:[ \t]|\\\r?\n)"
_IMPORT = re.compile(
    rb"\n[ \t]*(?:from%b+([\w.]+)%b+import\b|import\b)%b*(\((?:[^)#]+|#.*)*|(?:[^\\\r\n#;]+|\\\r?\n)*)" % ((_GAP,) * 3),
)
_COMMENT = re.compile(rb"#.*")
_NAME = re.compile(rb"[\s(\\]*([\w.]+)")


@cache
def sources_of(file: Path) -> tuple[Path, ...]:
    """``file`` and the compiled modules that it imports, directly or not, sorted by path."""
    found, ahead = {file}, [file]
    while ahead:
        new = _scan(ahead.pop())[0] - found
        found |= new
        ahead += new
    return tuple(sorted(found))


@cache
def _scan(file: Path) -> tuple[frozenset[Path], bytes]:
    """The digested modules that a file imports, and the SHA-256 of the file."""
    source = file.read_bytes()
    paths = (ROOT.joinpath(*module.split(".")).with_suffix(".py") for module in _imported(source))
    return frozenset(path for path in paths if path.is_file()), hashlib.sha256(source).digest()


def _imported(source: bytes) -> set[str]:
    """The names of the digested modules that a source imports, and of other things that it imports from their packages."""
    modules: set[str] = set()
    for found, names in _IMPORT.findall(b"\n" + source):
        module = found.decode()
        modules.add(module)
        if module and module not in _PACKAGES:
            continue
        parts = _COMMENT.sub(b"", names).split(b",")
        prefix = f"{module}." if module else ""
        modules |= {prefix + name[1].decode() for part in parts if (name := _NAME.match(part))}
    return {module for module in modules if module.startswith(_DIGESTED)}


@cache
def digest_of_sources(file: Path) -> str:
    """SHA-256 over :func:`sources_of`, part of the cache key of the functions in ``file``."""
    digest = hashlib.sha256()
    for source in sources_of(file):
        digest.update(source.name.encode() + b"\0" + _scan(source)[1])
    return digest.hexdigest()


def compiled(function: _F) -> _F:
    """Compile ``function`` at its first call for each combination of argument types."""
    return _compile_marked(function)


def vectorised(function: _F) -> _F:
    """As :func:`compiled`, for loops over numbers: division by zero follows IEEE 754 without a branch."""
    return _compile_marked(function, error_model="numpy")


def uncounted(function: _F) -> _F:
    """As :func:`compiled`, without counting references to its arrays: for functions that kernels call in their loops.

    Counting is an atomic operation for every array of every call, which costs more than a short function. The caller holds the
    arrays. Such a function must not return an array; numba refuses to compile one that creates an array.
    """
    return _compile_marked(function, _nrt=False)


def inlined(function: _F) -> _F:
    """As :func:`uncounted`, and inlined by LLVM: for short functions of many arrays, whose passing is expensive."""
    return _compile_marked(function, forceinline=True, _nrt=False)


def pasted(function: _F) -> _F:
    """As :func:`compiled`, and inlined by numba before types are inferred."""
    return _compile_marked(function, inline="always")


def _compile_marked(function: _F, **options: Any) -> _F:
    dispatcher: Any = njit(nogil=True, **options)(function)
    # Not a public attribute; tests fail if a release of numba moves it.
    dispatcher._cache = KernelCache(function, digest_of_sources(Path(function.__code__.co_filename)))
    kernel: _F = dispatcher
    return kernel
