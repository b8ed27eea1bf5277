"""What TPUs cannot honour of a configuration, refused by name at construction.

``TPUEmbeddingV2`` takes several settings and then leaves them out of its program: the settings refused here for SparseCore were looked
for in the lowered program. Weight decay it refuses itself, without the name of the setting's table.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainer.errors import UnsupportedSetting
from trainer.tables.optimizers import FTRL, Adam, Optimizer, RowWiseAdagrad
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.table_checks import engine_tables

#: Settings that SparseCore's program leaves out, each with the only value that it has the effect of.
_ABSENT_FROM_SPARSE_CORE: dict[str, object] = {
    "use_gradient_accumulation": True,
    "clip_weight_min": None,
    "clip_weight_max": None,
    "clip_gradient_min": None,
    "clip_gradient_max": None,
    "weight_decay_factor": None,
    "multiply_weight_decay_factor_by_learning_rate": False,
}


def refuse_for_sparse_core(features: Sequence[FeatureSpec]) -> None:
    """Raise :class:`UnsupportedSetting` for what ``TPUEmbeddingV2`` would ignore, and :class:`ConfigError` for equal names."""
    for table in engine_tables(features):
        _refuse_on_all(table)
        for setting, value in _ABSENT_FROM_SPARSE_CORE.items():
            _refuse_unless(getattr(table.optimizer, setting) == value, table, setting, value, "SparseCore")
        _refuse_in_formulas(table, table.optimizer)


def _refuse_in_formulas(table: TableSpec, optimizer: Optimizer) -> None:
    if isinstance(optimizer, Adam):
        _refuse_unless(optimizer.lazy_adam, table, "lazy_adam", True, "SparseCore")
    if isinstance(optimizer, FTRL):
        _refuse_unless(not optimizer.allow_zero_accumulator, table, "allow_zero_accumulator", False, "SparseCore")


def refuse_for_tpu_embedding(features: Sequence[FeatureSpec]) -> None:
    """Raise :class:`UnsupportedSetting` for what ``TPUEmbedding`` (v2 to v4) does not have, :class:`ConfigError` for equal names."""
    for table in engine_tables(features):
        _refuse_on_all(table)


def _refuse_on_all(table: TableSpec) -> None:
    _refuse_unless(table.optimizer.admit_after == 1, table, "admit_after", 1, "TPU")
    found = type(table.optimizer).__name__
    _refuse_unless(not isinstance(table.optimizer, RowWiseAdagrad), table, "optimizer", "SGD, Adagrad, AdagradMomentum, Adam or FTRL", "TPU",
                   found)  # fmt: skip


def _refuse_unless(
    supported: bool, table: TableSpec, setting: str, allowed: object, engine: str, found: object = None
) -> None:
    if not supported:
        value = getattr(table.optimizer, setting) if found is None else found
        raise UnsupportedSetting(
            f"{setting} must be {allowed} on {engine}",
            where=f"table {table.name}",
            value=value,
            allowed=str(allowed),
            next_step="change the setting, or train with the cpu engine",
        )
