"""Methods of expressions over weighted lists."""

from __future__ import annotations

from typing import Self

from transforms.expressions.methods.base import Methods


class WeightedMethods(Methods):
    """Lists of ids with weights, and numbers of lists."""

    __slots__ = ()

    def weighted_by(self, weights: Self) -> Self:
        """The items of this list, each with the number at its place in ``weights``."""
        return self._apply("weighted_by", weights)

    def term_frequency(self, *, relative: bool = False) -> Self:
        """Each item once, weighted by how often it occurs, or by its share of the list."""
        return self._apply("term_frequency", relative=relative)

    def ids(self) -> Self:
        """The ids without their weights."""
        return self._apply("ids")

    def weights(self) -> Self:
        """The weights without their ids."""
        return self._apply("weights")

    def top_k(self, k: int) -> Self:
        """The ``k`` ids of the greatest weights, greatest first."""
        return self._apply("top_k", k=k)

    def scale_weights(self, factor: float) -> Self:
        """Every weight multiplied by ``factor``."""
        return self._apply("scale_weights", factor=factor)

    def normalize_weights(self, norm: str = "l1") -> Self:
        """Weights divided by their list's norm: "l1", "l2" or "max"."""
        return self._apply("normalize_weights", norm=norm)

    def pool(self, how: str = "sum") -> Self:
        """One number for a list of numbers or weights: "sum", "mean", "max" or "min"."""
        return self._apply("pool", how=how)
