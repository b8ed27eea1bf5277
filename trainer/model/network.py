"""The interface between the common train step and a network over activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from trainer.model.mlp import Mlp
from trainer.model.tower_modules import TowerModules


class Network(Protocol):
    """A network from the activations of embedded inputs and the dense numbers to logits.

    Attributes:
        trainable: the trained variables, in an order that depends on the options alone.
        random: the state of random generators.
        moving: other variables that training changes, such as moving means. Each process has its own.
        towers: the modules of towers, whose variables are among the trained ones; None without any.
    """

    trainable: list[Any]
    random: list[Any]
    moving: list[Any]
    towers: TowerModules | None

    @property
    def mlps(self) -> Sequence[Mlp]:
        """The MLPs whose hidden units are counted while they are off."""

    def logits(self, activations: Any, dense: Any, *, training: bool) -> Any:
        """[events, outputs] from the activations of all embedded inputs, side by side in order, and dense numbers [events, columns]."""

    def penalties(self) -> Sequence[Any]:
        """Scalars that are added to the mean loss, of the last call of :meth:`logits`."""
