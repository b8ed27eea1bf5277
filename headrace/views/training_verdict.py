"""The evidence for the verdict of ``headrace train``: the newest unseen figures, the trial, and the health of the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.terminal.output import say
from trainer.errors import TornCheckpoint

if TYPE_CHECKING:
    from trainer.model.scores import AnyScores
    from trainer.options.config import TrainConfig
    from trainer.run.evaluation.table_health import TableHealth
    from trainer.run.evaluation.verdict import Finding
    from trainer.run.loop import TrainReport


def training_verdict(settings: TrainConfig, report: TrainReport, test: AnyScores | None) -> tuple[Finding, ...]:
    """The findings on a trained model; ``test``: its figures on test events, None without any."""
    from trainer.run.evaluation.verdict import Evidence, first_pass_labels, verdict_of

    unseen, source = _unseen(report, test)
    health = _table_health(settings, report)
    return verdict_of(
        Evidence(
            unseen=unseen,
            source=source,
            trained=first_pass_labels(report.history),
            trial=settings.trial,
            is_linear=not settings.deep,
            idle=report.idle_units,
            tables=0 if health is None else health.tables,
            unmoved=() if health is None else health.unmoved,
            calibration=settings.calibration,
        )
    )


def _unseen(report: TrainReport, test: AnyScores | None) -> tuple[AnyScores | None, str]:
    """The newest figures of unseen events, and which events these are."""
    if test is not None and test.events:
        return test, "test events"
    unseen = report.final
    if unseen is None:
        return None, ""
    scored = report.held_out.scored[-1:] if report.held_out is not None else ()
    is_held_out = any(one.scores is unseen for one in scored)
    return unseen, "held-out events" if is_held_out else "events of the newest epoch, scored before training"


def _table_health(settings: TrainConfig, report: TrainReport) -> TableHealth | None:
    """The health of the tables in the newest checkpoint; None for a model without a network."""
    from trainer.checkpoints.open_run import open_run
    from trainer.checkpoints.run_files import newest_first
    from trainer.run.evaluation.table_health import table_health

    if not settings.deep or not report.checkpoint or settings.embeddings:
        return None
    files = open_run(settings.run_dir)
    names: Sequence[str] = newest_first(files)
    try:
        return table_health(files, names[0], settings.embedding_initial_stddev) if names else None
    except TornCheckpoint as error:
        say(f"the tables of the newest checkpoint cannot be read for the verdict: {error}")
        return None
