"""What the budget of a run with pruned tables has bought, from its newest checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainer.model.inputs import lay_out
from trainer.model.unbounded_tables import hashed_tables
from trainer.options.config import TrainConfig
from trainer.planning.kept_importance import KeptImportance, kept_importance
from trainer.run.weights.saved_run import SavedRun, read_newest_run
from trainer.run.weights.saved_tables import check_sections, saved_states
from trainer.tables.stores.pruned.history import SECTIONS, PrunedHistory


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows that pruned tables keep; ``rounds``: the rounds of pruning that there were."""

    tables: tuple[KeptImportance, ...]
    rounds: int


def kept_rows_of(saved: SavedRun, config: TrainConfig) -> KeptRows:
    """The rows that the tables of a pruned run keep, with the importance of all."""
    features = lay_out(saved.identity.typed_inputs, config).features
    hashed = hashed_tables(features, config)
    sizes = {one.table.name: one.table.vocabulary_size for one in features if one.table.name not in hashed}
    found, rounds = [], 0
    for kind in ("embedding", "linear"):
        for name, state in saved_states(saved.arrays, kind).items():
            if name in hashed:
                continue
            check_sections(name, state, SECTIONS)
            history = PrunedHistory.read(name, state.sections)
            assert history is not None
            kept, columns = state.rows, state.weights.shape[1]
            label = name if kind == "embedding" else f"linear {name}"
            found.append(kept_importance(label, sizes[name], columns, kept, history.rows, history.importance))
            rounds = max(rounds, history.rounds)
    return KeptRows(tuple(found), rounds)


def newest_kept_rows(config: TrainConfig, on_skip: Callable[[str], None]) -> KeptRows | None:
    """The rows that a run keeps in its newest checkpoint; None for a run without pruned tables, or without a checkpoint."""
    saved = None if config.pruning is None else read_newest_run(config.run_dir, on_skip=on_skip)
    return None if saved is None else kept_rows_of(saved, config)
