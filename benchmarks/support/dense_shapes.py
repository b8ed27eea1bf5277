"""The operations and weights of the dense part of DLRM- and DCN-like models and of the modules of towers, for any number and width of inputs. Pure.

With the shapes of the paper (Luo et al., "Disaggregated Multi-Tower", MLSys 2024) these are the operations of its tables 4 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Protocol

from trainer.errors import ConfigError


class ModuleShape(Protocol):
    """The module of a tower, by the number and the width of its inputs; see :mod:`trainer.model.tower_modules`."""

    @property
    def width(self) -> int:
        """The columns of the vectors that it gives; 0: those of the inputs."""

    def of_slices(self, slices: int) -> ModuleShape:
        """The module of a tower whose inputs are slices of the columns of features, ``slices`` of each."""

    def outputs(self, features: int, columns: int) -> int:
        """The columns of its outputs."""

    def weights(self, features: int, columns: int) -> int:
        """Its weights."""

    def products(self, features: int, columns: int) -> int:
        """Its multiplications for an event, forward."""


@dataclass(frozen=True, slots=True)
class ProjectionModule:
    """A module of DLRM: ``combinations`` vectors of each input by one matrix, and ``projections`` of all its columns, each of ``dim`` columns."""

    dim: int
    combinations: int = 1
    projections: int = 0

    def __post_init__(self) -> None:
        _check_counts(
            "a module", {"dim": self.dim}, {"combinations": self.combinations, "projections": self.projections}
        )
        if not self.combinations + self.projections:
            raise ConfigError(
                "a module must give vectors", value=(self.combinations, self.projections), allowed="at least one >= 1"
            )

    @property
    def width(self) -> int:
        """See :class:`ModuleShape`."""
        return self.dim

    def of_slices(self, slices: int) -> ProjectionModule:
        """See :class:`ModuleShape`: a slice gives its share of the columns of a vector."""
        return replace(self, dim=self.dim // slices)

    def outputs(self, features: int, columns: int) -> int:
        """See :class:`ModuleShape`."""
        return (features * self.combinations + self.projections) * self.dim

    def weights(self, features: int, columns: int) -> int:
        """See :class:`ModuleShape`. A tower of one input that it would map to a vector of its width passes it on."""
        if self._passes(features, columns):
            return 0
        return columns * self.dim * (self.combinations + features * self.projections)

    def products(self, features: int, columns: int) -> int:
        """See :class:`ModuleShape`."""
        if self._passes(features, columns):
            return 0
        return features * columns * self.dim * (self.combinations + self.projections)

    def _passes(self, features: int, columns: int) -> bool:
        return features == 1 and self.dim == columns and self.combinations + self.projections == 1


@dataclass(frozen=True, slots=True)
class CrossModule:
    """A module of DCN-v2: a cross layer of ``rank``, and a matrix to ``to`` columns, or to the columns of the inputs over ``ratio``.

    ``is_factored``: see :class:`DenseShape`.
    """

    rank: int
    to: int = 0
    ratio: float = 0.0
    is_factored: bool = False

    def __post_init__(self) -> None:
        _check_counts("a module", {"rank": self.rank}, {"to": self.to})
        if bool(self.to) == (self.ratio > 0) or not 0 <= self.ratio < float("inf"):
            raise ConfigError(
                "a module must give columns, or have a ratio", value=(self.to, self.ratio), allowed="one of them"
            )

    @property
    def width(self) -> int:
        """See :class:`ModuleShape`."""
        return 0

    def of_slices(self, slices: int) -> CrossModule:
        """See :class:`ModuleShape`."""
        return self

    def outputs(self, features: int, columns: int) -> int:
        """See :class:`ModuleShape`."""
        return self.to or round(features * columns / self.ratio)

    def weights(self, features: int, columns: int) -> int:
        """See :class:`ModuleShape`."""
        inputs = features * columns
        return _cross_weights(inputs, self.rank, self.is_factored) + inputs * self.outputs(features, columns)

    def products(self, features: int, columns: int) -> int:
        """See :class:`ModuleShape`."""
        return self.weights(features, columns)


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
        is_factored: whether a cross layer has two matrices also where its rank is not below its width, as in the paper's figures; here it has one.
    """

    name: str
    numbers: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    cross_layers: int = 0
    cross_rank: int = 0
    is_factored: bool = False

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

    def weights(self, embedded: int, width: int) -> int:
        """The weights of the layers, without biases, over ``embedded`` columns beside a vector of ``width`` columns of the numbers.

        Those of a DLRM are vectors of ``width`` columns, too.
        """
        bottom, together = _layers((self.numbers, *self.bottom, width)), embedded + width
        if self.cross_layers:
            crossed = self.cross_layers * _cross_weights(together, self.cross_rank, self.is_factored)
            return bottom + crossed + _layers((together, *self.top))
        vectors = together // width
        return bottom + _layers((vectors * (vectors - 1) // 2 + width, *self.top))

    def products(self, embedded: int, width: int) -> int:
        """The multiplications for an event, forward: one for each weight, and the dot products of DLRM."""
        dots = 0 if self.cross_layers else (embedded // width + 1) ** 2 * width
        return self.weights(embedded, width) + dots

    def step_flops(self, embedded: int, width: int, modules: int = 0) -> float:
        """The operations of a training step for an event; ``modules``: the multiplications of all towers' modules.

        A multiplication is two operations, forward and for each of two gradients; the first layer over the numbers has no gradient of its inputs.
        """
        first = (*self.bottom, width)[0]
        return 6.0 * (self.products(embedded, width) + modules) - 2.0 * self.numbers * first


def tower_flops(above: DenseShape, module: ModuleShape, towers: Sequence[int], columns: int) -> float:
    """The operations of a training step for an event, with a module in each tower of ``towers`` inputs of ``columns`` columns."""
    outputs = sum(module.outputs(features, columns) for features in towers)
    inside = sum(module.products(features, columns) for features in towers)
    return above.step_flops(outputs, module.width or columns, inside)


def even_towers(features: int, towers: int) -> tuple[int, ...]:
    """The inputs of each of ``towers`` towers of equally many inputs, within one."""
    return tuple(features // towers + (t < features % towers) for t in range(towers))


def _layers(widths: Sequence[int]) -> int:
    return sum(before * after for before, after in pairwise(widths))


def _cross_weights(width: int, rank: int, is_factored: bool) -> int:
    return 2 * width * rank if is_factored or rank < width else width * width


def _check_counts(what: str, positive: dict[str, int], others: dict[str, int]) -> None:
    if min(positive.values()) < 1 or min(others.values()) < 0:
        raise ConfigError(f"the numbers of {what} must be in range", value={**positive, **others},
                          allowed=f"{', '.join(positive)} >= 1; {', '.join(others)} >= 0")  # fmt: skip


#: MLPerf's DLRM and DLRM-DCNv2: 14.7 and 96.2 million operations of a training step for an event of 26 features of 128 columns.
DLRM: Final = DenseShape("DLRM", 13, (512, 256), (1024, 1024, 512, 256, 1))
DCN: Final = DenseShape("DCN", 13, (512, 256), (1024, 1024, 512, 256, 1), cross_layers=3, cross_rank=512)
#: What is above the modules of towers: a DLRM has one layer less.
DLRM_OVER: Final = DenseShape("DLRM", 13, (512, 256), (1024, 512, 256, 1))
#: The module of a tower of DCN in the paper's table 5.
DCN_MODULE: Final = CrossModule(rank=512, to=128, is_factored=True)
