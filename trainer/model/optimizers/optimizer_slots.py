"""What the dense optimizers keep for each weight, and their rates in the units of a batch. Pure."""

from __future__ import annotations

import numpy as np

from trainer.options.config import TrainConfig
from transforms.arrays import Array

#: The first value of newton's slots, in squared gradients of one event: the precision of a normal prior of each weight.
NEWTON_PRIOR = 5.0
#: Arrays like a weight that each optimizer keeps for it, by their first value; that of newton is divided by ``batch_rows`` squared.
SLOTS: dict[str, tuple[float, ...]] = {
    "sgd": (),
    "adagrad": (0.1,),
    "adam": (0.0, 0.0),
    "lamb": (0.0, 0.0),
    "lars": (0.0,),
    "newton": (NEWTON_PRIOR,),
}


def step_rate(kind: str, rate: float, batch_rows: int) -> float:
    """The rate in units of the gradients of a batch's *mean* loss: that of newton is in those of one event."""
    return rate / batch_rows if kind == "newton" else rate


def first_slots(config: TrainConfig, floats: int) -> list[Array]:
    """The slots of so many weights before the first update, float32."""
    factor = 1 / config.batch_rows**2 if config.dense_optimizer == "newton" else 1.0
    return [np.full(floats, start * factor, np.float32) for start in SLOTS[config.dense_optimizer]]
