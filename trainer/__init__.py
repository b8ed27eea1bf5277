"""Training: embeddings, input readers, checkpoints, the model and its loop.

This is the whole public surface. Names load on first use, so that ``import trainer`` and its light modules (readers,
checkpoints, metrics, embeddings) start without TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from trainer.model.scores import Scores as Scores
    from trainer.options.config import TrainConfig as TrainConfig
    from trainer.run.choosing.choose import choose_config as choose_config
    from trainer.run.loop import TrainEvent as TrainEvent
    from trainer.run.loop import TrainReport as TrainReport
    from trainer.run.loop import train as train
    from trainer.serving.trained import Trained as Trained
    from trainer.serving.trained import evaluate as evaluate
    from trainer.serving.trained import load_trained as load_trained

__getattr__, __dir__, __all__ = lazy_exports(__name__)
