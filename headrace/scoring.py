"""Loads a trained model as the function that scores events in a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import pyarrow as pa

    Array = np.ndarray[Any, np.dtype[Any]]


def load_scores(run_dir: str, checkpoint: str) -> Callable[[pa.Table], Array | dict[str, Array]]:
    """The function that predicts with the model in ``run_dir`` at this checkpoint, which must be the newest.

    Raises :class:`InputError` for another newest checkpoint, and what loading a trained model raises.
    """
    from headrace.terminal.quiet import keep_tensorflow_quiet

    keep_tensorflow_quiet()
    from trainer.serving.trained import load_trained

    trained = load_trained(run_dir)
    if trained.checkpoint != checkpoint:
        raise InputError("a run must not be trained while it is scored", where=run_dir, value=trained.checkpoint,
                         allowed=checkpoint, next_step="run the same command again after the training")  # fmt: skip
    return trained.predict
