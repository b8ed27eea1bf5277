"""Specs of embedding tables, features and optimizers: frozen values without TensorFlow.

The terms are those of ``tf.tpu.experimental.embedding``; :func:`trainer.embedding.tensorflow_settings` converts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.errors import ConfigError

_FLOAT32_MAX = 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Constant:
    """Every value is ``value``."""

    value: float = 0.0

    def __post_init__(self) -> None:
        _check_finite("initializer value", self.value)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Independent values, uniform in [low, high)."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_finite("initializer bound", self.low, self.high)
        if self.low > self.high:
            raise ConfigError(
                "an initializer's range must not be empty", value=(self.low, self.high), allowed="low <= high"
            )


@dataclass(frozen=True, slots=True)
class Normal:
    """Independent normal values; ``truncated`` ones are redrawn until within two standard deviations of the mean."""

    mean: float
    stddev: float
    truncated: bool = True

    def __post_init__(self) -> None:
        _check_finite("initializer parameter", self.mean, self.stddev)
        if self.stddev < 0:
            raise ConfigError("a standard deviation must be >= 0", value=self.stddev, allowed=">= 0")


Initializer = Constant | Uniform | Normal


@dataclass(frozen=True, slots=True)
class SGD:
    """``w ← w - learning_rate · g``. Formula and tests: :mod:`trainer.embedding.optimizers`."""

    learning_rate: float

    def __post_init__(self) -> None:
        _check_positive("learning_rate", self.learning_rate)


@dataclass(frozen=True, slots=True)
class Adagrad:
    """``a ← a + g²; w ← w - learning_rate · g / √a`` with ``a`` starting at ``initial_accumulator`` > 0, no epsilon."""

    learning_rate: float
    initial_accumulator: float = 0.1

    def __post_init__(self) -> None:
        _check_positive("learning_rate", self.learning_rate)
        _check_positive("initial_accumulator", self.initial_accumulator)


Optimizer = SGD | Adagrad


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table of ``vocabulary_size`` rows of ``dim`` float32 values.

    ``combiner``: "sum" or "mean" of a bag's rows; an empty bag gives zeros.
    ``initializer``: None for TensorFlow's default, a truncated normal of deviation 1/√dim.
    """

    name: str
    vocabulary_size: int
    dim: int
    optimizer: Optimizer
    combiner: str = "mean"
    initializer: Initializer | None = None

    def __post_init__(self) -> None:
        where = f"table {self.name}"
        if not self.name:
            raise ConfigError("a table must have a name")
        if self.vocabulary_size < 1:
            raise ConfigError(
                "a table must have at least one row", where=where, value=self.vocabulary_size, allowed=">= 1"
            )
        if self.dim < 1:
            raise ConfigError("a table must have at least one column", where=where, value=self.dim, allowed=">= 1")
        if self.combiner not in ("sum", "mean"):
            raise ConfigError("unknown combiner", where=where, value=self.combiner, allowed="sum, mean")

    @property
    def effective_initializer(self) -> Initializer:
        """The initializer, with TensorFlow's default filled in."""
        return self.initializer or Normal(0.0, 1.0 / math.sqrt(self.dim))


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """One input: bags of ids, looked up in ``table``. Features with equal tables share its rows."""

    name: str
    table: TableSpec


def tables_of(features: Sequence[FeatureSpec]) -> tuple[TableSpec, ...]:
    """The distinct tables in order of first use.

    Raises :class:`ConfigError` for two features, or two different tables, of one name.
    """
    tables: dict[str, TableSpec] = {}
    seen: set[str] = set()
    for feature in features:
        if feature.name in seen:
            raise ConfigError("feature names must be unique", value=feature.name)
        seen.add(feature.name)
        if tables.setdefault(feature.table.name, feature.table) != feature.table:
            raise ConfigError(
                "different tables must have different names",
                where=f"feature {feature.name}",
                value=str(feature.table),
                allowed=str(tables[feature.table.name]),
                next_step="give the tables different names, or the features the same table",
            )
    return tuple(tables.values())


def _check_finite(what: str, *values: float) -> None:
    for value in values:
        if not math.isfinite(value) or abs(value) > _FLOAT32_MAX:
            raise ConfigError(f"an {what} must be a finite float32", value=value)


def _check_positive(what: str, value: float) -> None:
    if not (0 < value <= _FLOAT32_MAX):
        raise ConfigError(
            f"an optimizer's {what} must be a finite number > 0", value=value, allowed="a finite number > 0"
        )
