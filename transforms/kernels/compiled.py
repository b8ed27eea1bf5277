"""How kernels are compiled: by numba, without the GIL, and kept on disk between processes.

Numba notices that a function's own file changed, but not that a function it calls in another file did: after an update
it would go on running old code, and a memo could be wrong. So what is kept is marked with a digest over the sources
that the function's file imports, however indirectly, and is compiled anew when any of them changes.

Nor does numba keep apart what several processes write: it numbers files and lists them in an index, written before the
file that it names. A process that was killed between the two, or two that compiled for different types at once, left
machine code under a name that meant another one's. So a file is named by what it holds, proves it when it is read, and
there is no index.

What is kept is unpickled and run: it is taken only from a folder, and out of a file, that no other user can have written
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

#: A kept file begins with SHA-256 over the rest.
_PROOF_BYTES = 32
_TOP = Path(__file__).parents[2]
#: Whose sources count: those with compiled functions, and those whose constants these use.
_PACKAGES = ("transforms.kernels", "transforms.operators", "trainer.embedding")


@cache
def sources_of(file: Path) -> tuple[Path, ...]:
    """``file`` and what it imports of the rooms' compiled code, directly or not, in order of path."""
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
    """SHA-256 over :func:`sources_of`: what kept machine code of the functions in ``file`` is marked with."""
    digest = hashlib.sha256()
    for source in sources_of(file):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def compiled(function: _F) -> _F:
    """``function`` compiled at its first call for each combination of argument types; see the module."""
    return _compile_marked(function)


def vectorised(function: _F) -> _F:
    """As :func:`compiled`, for loops over numbers: dividing by zero gives what IEEE 754 says, and no branch."""
    return _compile_marked(function, error_model="numpy")


def inlined(function: _F) -> _F:
    """As :func:`compiled`, and put into its callers: for short functions of many arrays, whose passing costs more."""
    return _compile_marked(function, forceinline=True)


def pasted(function: _F) -> _F:
    """As :func:`compiled`, and its body pasted into its callers before their types are known."""
    return _compile_marked(function, inline="always")


class KeptCode(IndexDataCacheFile):  # type: ignore[misc, unused-ignore]
    """Machine code of one function on disk: a file for each of numba's keys, such as argument types, and each digest."""

    def save(self, key: object, data: object) -> None:
        """Keep ``data``, whole or not at all."""
        content: bytes = self._dump((self._version, self._source_stamp, key, data))
        os.makedirs(self._cache_path, mode=0o700, exist_ok=True)
        with self._open_for_write(self._path(key)) as file:
            file.write(hashlib.sha256(content).digest() + content)

    def load(self, key: object) -> object:
        """What is kept under ``key``; None if nothing is, or if the file does not hold what its name says."""
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
    """What a file holds; nothing if it is not there, or if another user may have written it."""
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
