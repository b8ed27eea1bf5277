"""The operations and weights of the dense part of DLRM- and DCN-like models, for any number and width of vectors. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from trainer.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DenseShape:
    """The dense part of a model over vectors of features.

    Attributes:
        name: of the model.
        numbers: dense inputs of an event.
        bottom: the widths of the layers over these numbers, before a last one as wide as a vector.
        top: the widths of the layers after the interaction.
        cross_layers: those of a DCN, of rank ``cross_rank``; 0: vectors interact by dot products, as in DLRM.
        cross_rank: the rank of a cross layer.
    """

    name: str
    numbers: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    cross_layers: int = 0
    cross_rank: int = 0

    def __post_init__(self) -> None:
        if (
            self.numbers < 1
            or min((*self.bottom, *self.top), default=1) < 1
            or min(self.cross_layers, self.cross_rank) < 0
        ):
            raise ConfigError("a dense part must have numbers and layers with widths", where=self.name, value=(self.numbers, self.bottom, self.top))  # fmt: skip
        if not self.top or (self.cross_layers > 0) != (self.cross_rank > 0):
            raise ConfigError("a dense part must have top layers, and cross layers with their rank", where=self.name,
                              value=(self.top, self.cross_layers, self.cross_rank))  # fmt: skip

    def weights(self, vectors: int, width: int) -> int:
        """The weights of the layers, without biases, over ``vectors`` vectors of ``width`` beside that of the numbers."""
        together = (vectors + 1) * width
        bottom = _layers((self.numbers, *self.bottom, width))
        if self.cross_layers:
            return bottom + 2 * self.cross_layers * together * self.cross_rank + _layers((together, *self.top))
        return bottom + _layers((vectors * (vectors + 1) // 2 + width, *self.top))

    def event_flops(self, vectors: int, width: int) -> float:
        """The operations of an event, forward: two for each weight, and the dot products of DLRM."""
        products = 0 if self.cross_layers else 2 * (vectors + 1) ** 2 * width
        return 2.0 * self.weights(vectors, width) + products


def _layers(widths: Sequence[int]) -> int:
    return sum(before * after for before, after in pairwise(widths))


#: MLPerf's DLRM and DLRM-DCNv2: 14.7 and 96.2 million operations of a training step for an event of 26 features of 128 columns.
DLRM: Final = DenseShape("DLRM", 13, (512, 256), (1024, 1024, 512, 256, 1))
DCN: Final = DenseShape("DCN", 13, (512, 256), (1024, 1024, 512, 256, 1), cross_layers=3, cross_rank=512)
