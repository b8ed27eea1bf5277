"""The tables of an engine's features, and what engines that update rows themselves refuse of them."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.errors import ConfigError
from trainer.tables.spec import FeatureSpec, TableSpec, tables_of


def engine_tables(features: Sequence[FeatureSpec]) -> tuple[TableSpec, ...]:
    """The tables of features, in the order of their first use. Raises :class:`ConfigError` without features and for equal names."""
    if not features:
        raise ConfigError("an embedding engine must have at least one feature")
    return tables_of(features)


def supported_tables(features: Sequence[FeatureSpec]) -> tuple[TableSpec, ...]:
    """As :func:`engine_tables`. Raises :class:`ConfigError` also for settings that the engines on processors do not have."""
    tables = engine_tables(features)
    for table in tables:
        _refuse_unsupported(table)
    return tables


def _refuse_unsupported(table: TableSpec) -> None:
    optimizer = table.optimizer
    if not optimizer.use_gradient_accumulation:
        raise ConfigError("use_gradient_accumulation must be True", where=f"table {table.name}", value=False, allowed="True",
                          next_step="this engine sums the gradients of a row before its update")  # fmt: skip
    if not getattr(optimizer, "lazy_adam", True):
        raise ConfigError("lazy_adam must be True", where=f"table {table.name}", value=False, allowed="True",
                          next_step="this engine updates the rows of a batch only")  # fmt: skip
