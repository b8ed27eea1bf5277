"""Training: embeddings, input readers, checkpoints, the model and its loop.

This is the whole public surface. Names load on first use, so that ``import trainer`` and its light modules (readers,
checkpoints, metrics, embeddings) start without TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.choosing import choose_config
    from trainer.config import TrainConfig
    from trainer.loop import TrainEvent, TrainReport, train
    from trainer.metrics import Scores
    from trainer.trained import Trained, evaluate, load_trained

_HOMES = {
    "Scores": "trainer.metrics",
    "TrainConfig": "trainer.config",
    "TrainEvent": "trainer.loop",
    "TrainReport": "trainer.loop",
    "Trained": "trainer.trained",
    "choose_config": "trainer.choosing",
    "evaluate": "trainer.trained",
    "load_trained": "trainer.trained",
    "train": "trainer.loop",
}

__all__ = [
    "Scores",
    "TrainConfig",
    "TrainEvent",
    "TrainReport",
    "Trained",
    "choose_config",
    "evaluate",
    "load_trained",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trainer' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
