"""A checkpoint that goes on under other optimizers: its weights with the slots that these begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from trainer.checkpoints.checkpoint import read_epoch
from trainer.checkpoints.commit_manifest import table_of
from trainer.errors import TornCheckpoint
from trainer.model.inputs import lay_out
from trainer.options.config import TrainConfig
from trainer.run.progress.identity import with_neutral_options
from trainer.run.weights.run_state import linear_features
from trainer.run.weights.saved_run import SavedRun, saved_run
from trainer.tables.changed_optimizer import slots_of_other
from trainer.tables.optimizers import Optimizer, slot_width
from trainer.tables.spec import FeatureSpec
from trainer.tables.stores.pruned.history import LEFT
from transforms.arrays import Array

_OF_TABLES = ("embedding_optimizer", "linear_optimizer")
_OF_DENSE = "dense_optimizer"
_DENSE_SLOTS = "dense/optimizer/"


def changes_tables(saved: SavedRun, config: TrainConfig) -> bool:
    """Whether rows of a checkpoint go on under another optimizer."""
    recorded = with_neutral_options(saved.identity.config)
    return any(recorded[one] != getattr(config, one) for one in _OF_TABLES)


def with_slots_of(saved: SavedRun, config: TrainConfig, initial: Callable[[], Mapping[str, Array]]) -> SavedRun:
    """A checkpoint as a run with ``config`` goes on from it: slots are those of its optimizers.

    Those of rows are as :func:`~trainer.tables.changed_optimizer.slots_of_other` says; those of dense weights begin again, with their number of
    updates, by which Adam corrects its moments.

    Args:
        initial: gives the arrays of a model with ``config`` that was not trained, at least those of the dense optimizer; called if that is another one.

    Raises :class:`TornCheckpoint` for rows that have not the slots of the optimizer of the checkpoint.
    """
    arrays = dict(saved.arrays)
    if with_neutral_options(saved.identity.config)[_OF_DENSE] != config.dense_optimizer:
        arrays = {name: array for name, array in arrays.items() if not name.startswith(_DENSE_SLOTS)}
        arrays.update((name, array.copy()) for name, array in initial().items() if name.startswith(_DENSE_SLOTS))
    if changes_tables(saved, config):
        before, after = _optimizers(saved, _recorded(saved, config)), _optimizers(saved, config)
        arrays.update(_changed(arrays, before, after))
    return replace(saved, arrays=arrays)


def _recorded(saved: SavedRun, config: TrainConfig) -> TrainConfig:
    return TrainConfig.from_document(with_neutral_options(saved.identity.config), run_dir=config.run_dir)


def _optimizers(saved: SavedRun, config: TrainConfig) -> dict[tuple[str, str], Optimizer]:
    """The optimizer of each table, by the part of the model and the table's name."""
    layout = lay_out(saved.identity.typed_inputs, config)
    return _of("embedding", layout.features) | _of("linear", linear_features(layout, config, saved.head))


def _of(part: str, features: Iterable[FeatureSpec]) -> dict[tuple[str, str], Optimizer]:
    return {(part, one.table.name): one.table.optimizer for one in features}


def _changed(
    arrays: Mapping[str, Array], before: Mapping[tuple[str, str], Optimizer], after: Mapping[tuple[str, str], Optimizer]
) -> dict[str, Array]:
    found = {}
    for name, slots in arrays.items():
        if (of := table_of(name)) is None or of[1] != "slots":
            continue
        part, _, section = of[0].partition("-")
        if section not in ("", LEFT):
            continue
        key = part, of[2]
        weights = arrays[f"{name.removesuffix(f'slots/{of[2]}')}weights/{of[2]}"]
        if key not in before or slots.shape != (len(weights), slot_width(before[key], weights.shape[1])):
            raise TornCheckpoint("a table's slots must be those of its optimizer", where=name, value=slots.shape,
                                 allowed="one row for each of its rows, as wide as its optimizer has it")  # fmt: skip
        found[name] = np.ascontiguousarray(slots_of_other(before[key], after[key], weights, slots))
    return found


def read_with_tables(run_dir: str | Path, saved: SavedRun, config: TrainConfig, on_refusal: Callable[[str], None]) -> SavedRun:  # fmt: skip
    """The checkpoint with the tables that servers were to read, if their slots change: servers read what is stored.

    ``on_refusal`` is called with the reason then.
    """
    if not (saved.unread and changes_tables(saved, config)):
        return saved
    on_refusal("the optimizer of its tables is another one from here on, so this process gives rows their new slots")
    return saved_run(read_epoch(run_dir, saved.number))
