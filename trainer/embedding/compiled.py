"""How the engine's kernels are compiled: see :mod:`transforms.kernels.compiled` for why what is kept carries a mark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from transforms.kernels.compiled import compile_marked, digest_of_sources

_F = TypeVar("_F", bound=Callable[..., Any])

SOURCES = digest_of_sources(Path(__file__).parent)


def compiled(function: _F) -> _F:
    """``function`` compiled at its first call, without the GIL; compiled anew when a source beside it changes."""
    return compile_marked(function, SOURCES)


def inlined(function: _F) -> _F:
    """As :func:`compiled`, and written into its callers."""
    return compile_marked(function, SOURCES, inline="always")
