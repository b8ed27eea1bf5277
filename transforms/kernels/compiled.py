"""Compilation of kernels by numba, without the GIL, and the cache of machine code on disk.

Numba detects a change of a function's own file, but not of functions that it calls in other files: after an update it
would run old code, and a memo could be wrong. So the key of cached code includes a digest of all sources that the
function's file imports, directly or not; a change of any of them compiles it again.

Numba's own cache is not safe for several processes: it numbers files in an index that is written before the file. A
process killed in between, or two that compile for different types, leave machine code under the wrong name. So here a
file is named by its content and checked when it is read, without an index.

Cached code is unpickled and run, so it is read only from folders and files that no other user can write
(``trusted_folder.py``).
"""

from __future__ import annotations

import ast
import hashlib
import os
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from numba import config, njit
from numba.core.caching import IndexDataCacheFile

from transforms.kernels.trusted_folder import is_trusted_file, private_folder, trusted_folder

_F = TypeVar("_F", bound=Callable[..., Any])

#: A cache file begins with SHA-256 over the rest.
_PROOF_BYTES = 32
_TOP = Path(__file__).parents[2]
#: The packages with compiled functions or with constants of them; their sources are digested.
_PACKAGES = ("transforms.kernels", "transforms.operators", "trainer.embedding", "warehouse.files.memo_format")


@cache
def sources_of(file: Path) -> tuple[Path, ...]:
    """``file`` and the compiled modules that it imports, directly or not, sorted by path."""
    found, ahead = {file}, [file]
    while ahead:
        new = _imported(ahead.pop()) - found
        found |= new
        ahead += new
    return tuple(sorted(found))


@cache
def _imported(file: Path) -> set[Path]:
    top = ast.parse(file.read_bytes()).body
    froms = [node for node in top if isinstance(node, ast.ImportFrom) and node.module]
    modules = {str(node.module) for node in froms}
    modules |= {f"{node.module}.{name.name}" for node in froms if node.module in _PACKAGES for name in node.names}
    paths = (_TOP.joinpath(*module.split(".")).with_suffix(".py") for module in modules if module.startswith(_PACKAGES))
    return {path for path in paths if path.is_file()}


@cache
def digest_of_sources(file: Path) -> str:
    """SHA-256 over :func:`sources_of`, part of the cache key of the functions in ``file``."""
    digest = hashlib.sha256()
    for source in sources_of(file):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def compiled(function: _F) -> _F:
    """Compile ``function`` at its first call for each combination of argument types."""
    return _compile_marked(function)


def vectorised(function: _F) -> _F:
    """As :func:`compiled`, for loops over numbers: division by zero follows IEEE 754 without a branch."""
    return _compile_marked(function, error_model="numpy")


def inlined(function: _F) -> _F:
    """As :func:`compiled`, and inlined by LLVM: for short functions of many arrays, whose passing is expensive."""
    return _compile_marked(function, forceinline=True)


def pasted(function: _F) -> _F:
    """As :func:`compiled`, and inlined by numba before types are inferred."""
    return _compile_marked(function, inline="always")


class KeptCode(IndexDataCacheFile):  # type: ignore[misc, unused-ignore]
    """The cached machine code of one function: a file per numba key, such as argument types, and digest."""

    def save(self, key: object, data: object) -> None:
        """Store ``data`` atomically."""
        content: bytes = self._dump((self._version, self._source_stamp, key, data))
        os.makedirs(self._cache_path, mode=0o700, exist_ok=True)
        with self._open_for_write(self._path(key)) as file:
            file.write(hashlib.sha256(content).digest() + content)

    def load(self, key: object) -> object:
        """The data under ``key``; None if there is none, or if the file does not match its name."""
        found = _trusted_bytes(self._path(key))
        proof, content = found[:_PROOF_BYTES], found[_PROOF_BYTES:]
        if hashlib.sha256(content).digest() != proof:
            return None
        version, stamp, kept, data = pickle.loads(content)
        return data if (version, stamp, kept) == (self._version, self._source_stamp, key) else None

    def _path(self, key: object) -> str:
        name = hashlib.sha256(repr((self._version, self._source_stamp, key)).encode()).hexdigest()[:32]
        return os.path.join(self._cache_path, f"{Path(self._index_name).stem}.{name}.nbc")


def _trusted_bytes(path: str) -> bytes:
    """The bytes of a file; empty if it is absent or another user may have written it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        return file.read() if is_trusted_file(descriptor) else b""


def _compile_marked(function: _F, **options: Any) -> _F:
    dispatcher: Any = njit(nogil=True, **options)(function)
    try:
        dispatcher.enable_caching()
    except RuntimeError:  # numba finds no folder it may write to: a read-only installation, and no home
        config.CACHE_DIR = private_folder()
        dispatcher.enable_caching()
    # Not public attributes; tests fail if a release of numba moves them.
    cache = dispatcher._cache
    stamp = digest_of_sources(Path(function.__code__.co_filename))
    folder = trusted_folder(cache.cache_path)
    cache._cache_file = KeptCode(folder, Path(cache._cache_file._index_name).stem, stamp)
    kernel: _F = dispatcher
    return kernel
