"""Cross layers of DCN-v2 (Wang et al., "DCN V2", WWW 2021, equations 1 and 2)."""

from __future__ import annotations

from typing import Any

from trainer.model.mlp import SeededLayers


class CrossLayers:
    """``x_{l+1} = x_0 * (W x_l + b) + x_l``, elementwise product, for a number of layers over ``width`` columns.

    W is a full matrix, or U V^T of rank ``rank``.

    Attributes:
        layers: the dense layers, in order: W, or V then U, of each cross layer.
    """

    def __init__(self, made: SeededLayers, count: int, width: int, rank: int) -> None:
        self.layers: list[Any] = []
        self._steps: list[list[Any]] = []
        for _ in range(count):
            step = [made.dense(rank, width, None, bias=False)] if 0 < rank < width else []
            step.append(made.dense(width, rank if step else width, None))
            self._steps.append(step)
            self.layers += step

    def __call__(self, first: Any) -> Any:
        """[events, width] from [events, width]."""
        crossed = first
        for step in self._steps:
            product = crossed
            for layer in step:
                product = layer(product)
            crossed = first * product + crossed
        return crossed
