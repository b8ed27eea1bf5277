"""What engines check of gradients before they change a row."""

from __future__ import annotations

import numpy as np

from trainer.errors import BadBatch
from trainer.tables.batches import IdBatch
from transforms.arrays import Array


def check_gradients(batch: IdBatch, gradients: Array, width: int) -> None:
    """Raise :class:`BadBatch` for gradients of another type or shape than the activations of ``batch``."""
    if gradients.shape != (batch.rows, width) or gradients.dtype != np.float32:
        raise BadBatch("gradients must have the shape of the activations", value=(gradients.shape, str(gradients.dtype)),
                       allowed=f"float32 {(batch.rows, width)}")  # fmt: skip
