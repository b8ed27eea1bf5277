"""How kernels are compiled: by numba, without the GIL, and kept on disk between processes.

Numba notices that a function's own file changed, but not that a function it calls in another file did: after an update
it would go on running old code, and a memo could be wrong. So what is kept is marked with a digest over the sources
of all kernels and of the operators whose constants they use, and is compiled anew when any of them changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from numba import njit

_F = TypeVar("_F", bound=Callable[..., Any])


def digest_of_sources(*folders: Path) -> str:
    """SHA-256 over the Python files of these folders: what kept machine code is marked with."""
    digest = hashlib.sha256()
    for folder in folders:
        for source in sorted(folder.glob("*.py")):
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


SOURCES = digest_of_sources(Path(__file__).parent, Path(__file__).parents[1] / "operators")


def compiled(function: _F) -> _F:
    """``function`` compiled at its first call for each combination of argument types; see the module."""
    return compile_marked(function, SOURCES)


def inlined(function: _F) -> _F:
    """As :func:`compiled`, and put into its callers: for short functions of many arrays, whose passing costs more."""
    return compile_marked(function, SOURCES, forceinline=True)


def compile_marked(function: _F, sources: str, **options: Any) -> _F:
    """``function`` compiled with numba's ``options``; what is kept is used only while ``sources`` is the same."""
    dispatcher: Any = njit(cache=True, nogil=True, **options)(function)
    # Not a public attribute; a test fails if a release of numba moves it.
    dispatcher._cache._cache_file._source_stamp = sources
    kernel: _F = dispatcher
    return kernel
