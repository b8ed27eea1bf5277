"""Specs of embedding tables and features: frozen values without TensorFlow.

The terms are those of ``tf.tpu.experimental.embedding``; :mod:`trainer.tables.tensorflow_settings` converts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.errors import ConfigError
from trainer.tables.optimizers import Optimizer

COMBINERS = ("sum", "mean", "sqrtn")

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
class Quantization:
    """Simulated quantization of the rows that a lookup reads: clipped to [lower, upper], then rounded to ``num_buckets`` levels.

    The table itself stays float32, and gradients pass through unchanged.
    """

    num_buckets: int
    lower: float
    upper: float

    def __post_init__(self) -> None:
        _check_finite("quantization limit", self.lower, self.upper)
        if self.num_buckets < 2:
            raise ConfigError("a quantization must have at least 2 buckets", value=self.num_buckets, allowed=">= 2")
        if self.lower >= self.upper:
            raise ConfigError("a quantization's range must not be empty", value=(self.lower, self.upper),
                              allowed="lower < upper")  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table of ``vocabulary_size`` rows of ``dim`` float32 values.

    Attributes:
        combiner: how the rows of a bag are combined: "sum"; "mean", the sum over the sum of weights; "sqrtn", the sum over the
            square root of the sum of squared weights. An empty bag gives zeros.
        initializer: None for TensorFlow's default, a truncated normal of deviation 1/√dim.
        quantization: None, or how the rows that a lookup reads are quantized.
    """

    name: str
    vocabulary_size: int
    dim: int
    optimizer: Optimizer
    combiner: str = "mean"
    initializer: Initializer | None = None
    quantization: Quantization | None = None

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
        if self.combiner not in COMBINERS:
            raise ConfigError("a combiner must be a known one", where=where, value=self.combiner,
                              allowed=", ".join(COMBINERS))  # fmt: skip

    @property
    def effective_initializer(self) -> Initializer:
        """The initializer, with TensorFlow's default filled in."""
        return self.initializer or Normal(0.0, 1.0 / math.sqrt(self.dim))


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """One input: bags of ids, looked up in ``table``. Features with equal tables share its rows.

    ``max_sequence_length``: 0 for a feature whose bags are combined. Otherwise it is a sequence feature: its activations are the rows
    of the first so many ids of each event, one after the other, each times its weight; zeros follow a shorter bag.
    """

    name: str
    table: TableSpec
    max_sequence_length: int = 0

    def __post_init__(self) -> None:
        if self.max_sequence_length < 0:
            raise ConfigError("max_sequence_length must be >= 0", where=f"feature {self.name}",
                              value=self.max_sequence_length, allowed=">= 0")  # fmt: skip

    @property
    def width(self) -> int:
        """Columns of the activations."""
        return self.table.dim * max(self.max_sequence_length, 1)


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
