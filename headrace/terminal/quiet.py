"""Imports TensorFlow without its messages about CUDA and instruction sets, and without GPUs unless they are to train."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from importlib import import_module

from transforms.installation import own_module

#: The variable by which CUDA hides GPUs from a process and from those that it starts, and its value for none of them.
_VISIBLE, _NONE = "CUDA_VISIBLE_DEVICES", "-1"


class Gpus(Enum):
    """Which processes may see the GPUs of this machine."""

    HIDDEN = "none"
    OF_CHILDREN = "those that this one starts"
    OWN = "this one, too"


_gpus = Gpus.HIDDEN


def let_gpus_be_seen(gpus: Gpus) -> None:
    """Import TensorFlow as this says from now on; call it before its first import."""
    global _gpus  # TensorFlow looks for GPUs once in a process
    _gpus = gpus


def import_tensorflow_quietly() -> None:
    """Import the model's libraries, for the CPU unless :func:`let_gpus_be_seen` was called."""
    import_quietly("trainer.model.dense_model")


def keep_tensorflow_quiet() -> None:
    """Import TensorFlow as :func:`import_tensorflow_quietly` does where a model needs it: most are trained without it."""
    from trainer.model.tensorflow_loading import load_with

    load_with(import_tensorflow_quietly)


def import_quietly(module: str) -> None:
    """Import a module, by its name in a checkout, that imports TensorFlow. Native output is shown only if the import fails."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if _gpus is Gpus.HIDDEN:
        os.environ.setdefault(_VISIBLE, _NONE)
    with _native_stderr_held_back():
        import_module(own_module(module))
        if _gpus is Gpus.OF_CHILDREN:
            from trainer.model.tensorflow_settings import hide_gpus

            hide_gpus()


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
