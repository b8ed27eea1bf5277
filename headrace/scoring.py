"""The function with which a pipeline scores events: a trained model, loaded where a worker needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import pyarrow as pa


def load_scores(run_dir: str, checkpoint: str) -> Callable[[pa.Table], np.ndarray[Any, np.dtype[Any]]]:
    """The predictions of the model in ``run_dir`` as of the checkpoint at this path, which must be its newest.

    Raises :class:`InputError` where the run was trained on meanwhile, and what loading a trained model raises.
    """
    from headrace.terminal.quiet import import_tensorflow_quietly

    import_tensorflow_quietly()
    from trainer.serving.trained import load_trained

    trained = load_trained(run_dir)
    if trained.checkpoint != checkpoint:
        raise InputError("a run must not be trained while it is scored", where=run_dir, value=trained.checkpoint,
                         allowed=checkpoint, next_step="run the same command again once training is over")  # fmt: skip
    return trained.predict
