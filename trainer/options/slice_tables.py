"""Training options that a TPU slice does not have, or its tables: those on parameter servers have the latter beside a slice, too.

Whole kinds of tables that a slice does not have are in :mod:`trainer.options.combinations`.
"""

from __future__ import annotations

from typing import NoReturn

from trainer.errors import ConfigError
from trainer.options.config import EMBEDDING_OPTIMIZERS, TrainConfig


def check_slice_rates(config: TrainConfig) -> None:
    """Raise :class:`ConfigError` for learning rates that a slice cannot train with, wherever the tables are."""
    if config.learning_rate_schedule is not None:
        raise ConfigError("learning_rate_schedule must be left out with --tpu", where="learning_rate_schedule", value=config.learning_rate_schedule.to_document(),
                          allowed="none: a slice trains many steps with one call of a program that has its rates compiled in",
                          next_step="correct this training option, or train without --tpu")  # fmt: skip


def check_slice_tables(config: TrainConfig) -> None:
    """Raise :class:`ConfigError` for an option that tables in a slice do not have."""
    if config.embedding_optimizer == "row_wise_adagrad":
        allowed = ", ".join(one for one in EMBEDDING_OPTIMIZERS if one != "row_wise_adagrad")
        _refuse("embedding_optimizer", config.embedding_optimizer, f"one of {allowed} in a slice")
    if config.admit_after > 1:
        _refuse("admit_after", config.admit_after, "1 in a slice, whose updates leave no row out")
    if config.embedding_weight_decay:
        _refuse("embedding_weight_decay", config.embedding_weight_decay, "0 in a slice: SparseCore has no weight decay")
    if config.staleness > 1:
        _refuse("staleness", config.staleness, "0 or 1 in a slice, whose lookups run ahead by one step")


def _refuse(name: str, value: object, allowed: str) -> NoReturn:
    raise ConfigError(f"{name} must be {allowed}", where=name, value=value, allowed=allowed,
                      next_step="correct this training option, or give --servers too: then the tables are on servers")  # fmt: skip
