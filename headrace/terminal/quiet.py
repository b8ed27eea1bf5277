"""Imports TensorFlow without its messages about CUDA and instruction sets."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from transforms.installation import own_module


def import_tensorflow_quietly() -> None:
    """Import the model's libraries for the CPU."""
    import_quietly("trainer.model.dense_model")


def import_quietly(module: str) -> None:
    """Import a module, by its name in a checkout, that imports TensorFlow, for the CPU. Native output is shown only if the import fails."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    with _native_stderr_held_back():
        import_module(own_module(module))


@contextmanager
def _native_stderr_held_back() -> Iterator[None]:
    """Redirect the file descriptor of standard error: native code does not write to ``sys.stderr``."""
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
