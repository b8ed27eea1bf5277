"""Which tables of a model are hashed, by the option ``hashed``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainer.errors import ConfigError
from trainer.options.config import TrainConfig
from trainer.options.hashed import HashedOptions
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.stores.hashed.limits import TableLimits
from transforms.errors import nearest


def hashed_tables(features: Sequence[FeatureSpec], config: TrainConfig) -> dict[str, HashedOptions]:
    """The options of hashed tables by the names of the tables, of the embedded inputs of a model.

    Raises :class:`ConfigError` for a name that is neither an input's nor a table's, and for a table that is named twice.
    """
    of_inputs = {feature.name: feature.table.name for feature in features}
    known = [*dict.fromkeys([*of_inputs, *of_inputs.values()])]
    found: dict[str, HashedOptions] = {}
    for name, options in config.hashed.items():
        if name not in known:
            raise ConfigError("an option must name an embedded input, or its table", where="hashed", value=name,
                              allowed=nearest(name, known), next_step="correct this training option")  # fmt: skip
        table = of_inputs.get(name, name)
        if table in found:
            raise ConfigError("hashed must name each table once", where=f"hashed[{name!r}]", value=f"table {table}",
                              next_step="leave one of its names out")  # fmt: skip
        found[table] = options
    return found


def table_limits(
    features: Sequence[FeatureSpec], config: TrainConfig, parts: Sequence[Mapping[str, TableSpec]]
) -> dict[str, TableLimits]:
    """The limits of hashed tables by name; ``parts``: the tables of each part of the model, which share a budget."""
    return {
        name: TableLimits.of(options, [tables[name] for tables in parts])
        for name, options in hashed_tables(features, config).items()
    }
