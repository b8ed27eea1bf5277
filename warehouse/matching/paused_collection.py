"""Pauses Python's garbage collection while many objects are made of which none is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Collect nothing within the block: each collection would look through all objects made so far.

    Memory is still released where no reference is left. In several threads at once, the first to leave resumes collection.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
