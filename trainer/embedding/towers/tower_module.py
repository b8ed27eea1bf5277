"""What compresses the outputs of a tower before they leave its hosts, as an interface, and the sum of its gradients inside the tower."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from trainer.embedding.exchange import Exchange

Array = np.ndarray[Any, np.dtype[Any]]


class TowerModule(Protocol):
    """The dense layers of one tower (Luo et al., MLSys 2024, section 3.2), equal on all workers of the tower."""

    @property
    def width(self) -> int:
        """Columns of the outputs."""

    def outputs(self, activations: Array) -> Array:
        """float32 [events, width] from the activations of the tower's features, float32 [events, columns]."""

    def gradients(self, activations: Array, by_outputs: Array) -> tuple[Array, Array]:
        """The loss's gradients by the activations, of their shape, and by all weights, flat; from those by the outputs."""

    def apply(self, gradients: Array) -> None:
        """One update of the weights by flat float32 gradients."""


def sum_in_tower(group: Exchange, gradients: Sequence[Array]) -> Array:
    """The sum of all workers' flat float32 ``gradients``, one or more a worker, in the order of places: equal on all, bit for bit.

    Each worker sums a part of the values, then all exchange their parts: a worker sends about twice the bytes of one gradient.
    """
    own = np.stack([np.asarray(one, np.float32) for one in gradients])
    cuts = np.linspace(0, own.shape[1], group.hosts + 1).astype(np.int64)
    parts = [np.ascontiguousarray(own[:, first:stop]).reshape(-1) for first, stop in pairwise(cuts)]
    received = group.all_to_all([[part] for part in parts])
    size = int(cuts[group.rank + 1] - cuts[group.rank])
    total = np.zeros(size, np.float32)
    for (message,) in received:
        for one in message.reshape(-1, size) if size else ():
            total += one
    return np.concatenate([message for (message,) in group.all_to_all([[total]] * group.hosts)])
