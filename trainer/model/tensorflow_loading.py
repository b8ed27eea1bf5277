"""When TensorFlow is loaded: before a model that needs it is built, and not before.

A command may say how, such as with its messages held back.
"""

from __future__ import annotations

from collections.abc import Callable

_load: Callable[[], None] | None = None


def load_with(load: Callable[[], None]) -> None:
    """Load TensorFlow by this function in the rest of the process."""
    global _load  # TensorFlow is loaded once in a process
    _load = load


def load_tensorflow() -> None:
    """Load TensorFlow; call it before an import that does."""
    if _load is not None:
        _load()
