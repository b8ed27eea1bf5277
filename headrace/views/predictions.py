"""Scores that were written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.predict import PredictedScreen
    from pipelines.scoring import ScoringReport
    from warehouse.solution.solution import ReadSolution


def predicted(
    solution: ReadSolution, done: ScoringReport, checkpoint: str, output: str, secs: float
) -> PredictedScreen:
    """The scores of a read in the folder ``output``, by a checkpoint, after so many seconds."""
    from headrace.screens.predict import PredictedScreen

    return PredictedScreen(
        model=solution.model,
        version=solution.model_version,
        checkpoint=checkpoint,
        output=output,
        partitions=done.partitions,
        files=done.files,
        rows=done.rows,
        known_files=done.known_files,
        failures=tuple(f"{error.where}: {error.what}" for error in done.failures),
        secs=secs,
    )
