"""What compresses the outputs of a tower before they leave its hosts, as an interface, and the sum of its gradients inside the tower."""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import numpy as np

from trainer.tables.routes.exchange import Exchange
from transforms.arrays import Array


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


def sum_in_tower(group: Exchange, gradients: Array) -> Array:
    """The sum of all workers' flat float32 ``gradients``, in the order of places: equal on all, bit for bit.

    Each worker sums a part of the values, then all exchange their parts: a worker sends about twice the bytes of its gradients.
    """
    cuts = np.linspace(0, len(gradients), group.hosts + 1).astype(np.int64)
    received = group.all_to_all([[gradients[first:stop]] for first, stop in pairwise(cuts)])
    total = np.zeros(int(cuts[group.rank + 1] - cuts[group.rank]), np.float32)
    for (one,) in received:
        total += one
    return np.concatenate([one for (one,) in group.all_to_all([[total]] * group.hosts)])
