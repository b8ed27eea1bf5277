"""Training on parameter servers goes on when a server loses its rows: from the newest checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

from trainer.errors import ServerLost

Report = TypeVar("Report")

#: Losses, one after the other, without a new checkpoint between them, after which training is still begun again.
MOST_LOSSES = 3


def train_through_losses(
    train: Callable[[int], Report], newest: Callable[[], str], on_loss: Callable[[ServerLost, str], None]
) -> Report:
    """What ``train`` returns. It is called again after a loss, and goes on from the newest checkpoint.

    Args:
        train: trains from the newest checkpoint on; it is given the number of the attempt, from 1 on.
        newest: the name of the newest checkpoint; empty if there is none.
        on_loss: is called for each loss with that name, before training goes on.

    Raises :class:`ServerLost` when more than :data:`MOST_LOSSES` follow each other without a new checkpoint.
    """
    losses, last = 0, newest()
    for attempt in itertools.count(1):
        try:
            return train(attempt)
        except ServerLost as error:
            found = newest()
            losses = losses + 1 if found == last else 1
            last = found
            if losses > MOST_LOSSES:
                raise
            on_loss(error, found)
    raise AssertionError("attempts have no end")
