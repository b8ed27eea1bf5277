"""What the budget of a run with pruned tables has bought."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from transforms.errors import InputError, NotFound

if TYPE_CHECKING:
    from headrace.screens.pruning import PruningScreen


def kept_rows(folder: str, tell: Callable[[str], None], *, svg: str = "") -> PruningScreen:
    """The rows that each table of the newest checkpoint keeps, and their share of importance; ``svg``: the file that has the drawing.

    ``tell`` is given each checkpoint that is skipped. Raises :class:`NotFound` without a checkpoint, and :class:`InputError` for a run without pruned tables.
    """
    from headrace.screens.pruning import PruningScreen
    from trainer.options.config import TrainConfig
    from trainer.planning.kept_importance import unpruned_share
    from trainer.run.weights.kept_rows import kept_rows_of
    from trainer.run.weights.saved_run import read_newest_run

    saved = read_newest_run(folder, on_skip=lambda reason: tell(f"a checkpoint was skipped: {reason}"))
    if saved is None:
        raise NotFound("the run directory must hold a checkpoint", where=folder, next_step="train first")
    config = TrainConfig.from_document(saved.identity.config, run_dir=folder)
    if config.pruning is None:
        raise InputError("headrace prune needs a run with pruned tables", where=folder, value="a run without the option pruning",
                         next_step='headrace train MODEL --config with {"pruning": {"budget": 0.5}}')  # fmt: skip
    kept = kept_rows_of(saved, config)
    return PruningScreen(
        folder,
        saved.number,
        saved.progress.step,
        kept.rounds,
        config.pruning.budget,
        kept.tables,
        unpruned_share(kept.tables),
        svg,
    )
