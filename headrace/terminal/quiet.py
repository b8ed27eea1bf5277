"""Importing TensorFlow without what it says about CUDA and instruction sets before anybody asked."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module


def import_tensorflow_quietly() -> None:
    """Load the model's libraries for the CPU."""
    import_quietly("trainer.model.dlrm")


def import_quietly(module: str) -> None:
    """Load a module that loads TensorFlow, for the CPU. What that prints is dropped if it loads and shown if it does not."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    with _native_stderr_held_back():
        import_module(module)


@contextmanager
def _native_stderr_held_back() -> Iterator[None]:
    """Native code writes to the file descriptor, not to ``sys.stderr``; so it is the descriptor that is diverted."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(kept, 2)
            held.seek(0)
            os.write(2, held.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
