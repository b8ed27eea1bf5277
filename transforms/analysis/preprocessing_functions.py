"""The preprocessing functions of this process that need an analysis, by the digest of their traced graph.

An input holds only the digest of its function, so the process that described a model must analyze it. A submitted model
holds the resulting graph instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from transforms.errors import InputError
from transforms.types import ColumnType


@dataclass(frozen=True)
class AnalyzedFunction:
    """A preprocessing_fn with analyzers.

    Attributes:
        digest: that of its traced graph, analyzers included.
        function: what tf.Transform calls with tensors by key.
        ways: how each column enters, by key; see :mod:`transforms.twins.entering`.
        types: the type of each column, by key.
        analyzed: the keys that the analyzers read, sorted.
        outputs: the keys of the outputs that need the analysis, sorted.
        analyzers: the analyzers that it calls, as an error lists them.
    """

    digest: str
    function: Callable[[dict[str, Any]], Mapping[str, Any]]
    ways: Mapping[str, str]
    types: Mapping[str, ColumnType]
    analyzed: tuple[str, ...]
    outputs: tuple[str, ...]
    analyzers: str


_KNOWN: dict[str, AnalyzedFunction] = {}
_LOCK = threading.Lock()


def keep_function(function: AnalyzedFunction) -> None:
    """Register a function in this process. Functions of one digest compute the same."""
    with _LOCK:
        _KNOWN[function.digest] = function


def kept_function(digest: str) -> AnalyzedFunction:
    """The function of this digest. Raises :class:`InputError` in a process that did not describe it."""
    with _LOCK:
        found = _KNOWN.get(digest)
    if found is None:
        raise InputError("a preprocessing_fn must be analyzed by the process that described its model", value=digest,
                         allowed=", ".join(sorted(_KNOWN)) or "(none is described here)",
                         next_step="headrace analyze MODEL_FILE")  # fmt: skip
    return found
