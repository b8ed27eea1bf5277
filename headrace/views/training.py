"""What a training has done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from headrace.terminal.output import say
from headrace.views.training_figures import pruned_row
from headrace.views.training_verdict import training_verdict

if TYPE_CHECKING:
    from headrace.screens.plan_history import FollowedPlanRow
    from headrace.screens.training import EpochRow, OptionRow, PassesRow, TowerRow, TrainedScreen
    from headrace.screens.training_figures import PlacementRow, ServedRow
    from trainer.model.scores import AnyScores
    from trainer.options.config import TrainConfig
    from trainer.options.towers import HostTowers
    from trainer.run.loop import TrainReport
    from trainer.run.progress.evaluation_log import EvaluatedCommit
    from trainer.serving.deltas.commit_exporter import ExportedChain
    from trainer.tables.hashed_counts import HashedCounts
    from warehouse.solution.solution import ReadSolution


def trained_screen(
    solution: ReadSolution,
    held_out: ReadSolution | None,
    settings: TrainConfig,
    report: TrainReport,
    hashed: dict[str, HashedCounts],
    scores: AnyScores | None,
    baselines: dict[str, float | None],
    secs: float,
    exported: ExportedChain | None,
    towers: HostTowers,
    *,
    placement: PlacementRow | None,
    followed_plan: FollowedPlanRow | None,
    served: ServedRow | None,
    evaluations: Sequence[EvaluatedCommit],
) -> TrainedScreen:
    """What a training has done: ``secs`` long, with its test, exports, servers and placement."""
    from headrace.screens.evaluations import EvaluationRow
    from headrace.screens.training import TrainedScreen, export_row
    from trainer.checkpoints.host_steps import idle_share
    from trainer.planning.kept_importance import unpruned_share
    from trainer.run.weights.kept_rows import newest_kept_rows

    ledger, kept = report.ledger, newest_kept_rows(settings, on_skip=say)
    return TrainedScreen(
        model=solution.model,
        version=solution.model_version,
        table=solution.table,
        table_version=solution.table_version,
        run_dir=settings.run_dir,
        resumed_from=report.resumed_from,
        epochs=_epoch_rows(report),
        events_this_time=report.events,
        events_in_range=solution.rows,
        columns_read={action: solution.count(action) for action in ("load", "compute", "raw")},
        options=_option_rows(settings),
        passes=(report.held_out.stopped if report.held_out else 0) or settings.passes,
        counted=None if ledger is None else ledger.events,
        fewest_times=None if ledger is None else ledger.least,
        most_times=None if ledger is None else ledger.most,
        exact=None if ledger is None else ledger.exact,
        unlabelled=report.unlabelled,
        late=report.late,
        staleness=report.staleness,
        steps_by_host={name: one.steps for name, one in report.host_steps.items()},
        idle_host_steps_share=idle_share(report.host_steps),
        events_per_step=settings.rows_of_step(max(len(report.host_steps), 1)),
        hashed=hashed,
        hot=report.hot,
        batch_files=report.batch_files,
        tower_figures=report.tower_figures,
        sum_figures=report.sum_figures,
        placement=placement,
        followed_plan=followed_plan,
        served=served,
        budget=1.0 if settings.pruning is None else settings.pruning.budget,
        label=solution.label,
        task=solution.target.kind,
        test_unlabelled=held_out.rows - scores.events if held_out and scores else 0,
        test=scores,
        baselines=baselines,
        training_secs=report.seconds,
        secs=secs,
        finished=report.finished,
        export=None if exported is None else export_row(exported),
        towers=_tower_row(solution, settings, towers),
        trial=settings.trial,
        verdict=training_verdict(settings, report, scores),
        unpruned_share=None if kept is None else unpruned_share(kept.tables),
        kept=None if kept is None else pruned_row(kept.tables),
        all_passes=_passes_row(solution, settings, report),
        calibrations=_calibrations(settings, report),
        evaluations=tuple(EvaluationRow(PurePath(settings.run_dir).name, one) for one in evaluations),
    )


def _epoch_rows(report: TrainReport) -> tuple[EpochRow, ...]:
    from headrace.screens.training import TRAINING, UNSEEN, EpochRow

    return tuple(
        EpochRow(
            item.epoch,
            item.partitions[0],
            item.partitions[-1],
            item.scores,
            item.pass_number + 1,
            UNSEEN if item.is_unseen else TRAINING,
        )
        for item in report.history
    )


def _passes_row(solution: ReadSolution, settings: TrainConfig, report: TrainReport) -> PassesRow | None:
    """The passes of a run that may have several."""
    from headrace.screens.training import HeldOutRow, PassesRow

    if report.held_out is None:
        if settings.passes == 1:
            return None
        return PassesRow(settings.passes, 0, (), _why_nothing_is_held_out(solution, settings))
    rows, before = [], None
    for one in report.held_out.scored:
        gain, error = (None, None) if before is None else one.gain_over(before)
        place = report.held_out_partitions[0], report.held_out_partitions[-1]
        rows.append(HeldOutRow(one.passes, one.epochs_done - 1, *place, one.scores, one.loss, gain, error))
        before = one
    return PassesRow(settings.passes, report.held_out.stopped, tuple(rows), "")


def _calibrations(settings: TrainConfig, report: TrainReport) -> dict[str, str]:
    """By label, the map of predictions in words."""
    if settings.calibration == "none":
        return {}
    found = {} if report.held_out is None else report.held_out.calibrations
    return {name: one.text() for name, one in found.items()} or {"": "none: no held-out event has been scored"}


def _why_nothing_is_held_out(solution: ReadSolution, settings: TrainConfig) -> str:
    if not settings.held_out_share:
        return "held_out_share is 0"
    if len(solution.partitions) == 1:
        return "the range has one partition, and whole partitions are held out"
    return "when the run began, its range had one partition with labels, or its release held nothing out"


def _option_rows(settings: TrainConfig) -> tuple[OptionRow, ...]:
    """The chosen options, one row per reason."""
    from headrace.screens.training import OptionRow

    values = settings.to_document()
    by_reason: dict[str, list[str]] = {}
    for name, reason in settings.chosen.items():
        by_reason.setdefault(reason, []).append(name)
    return tuple(OptionRow({name: values[name] for name in names}, reason) for reason, names in by_reason.items())


def _tower_row(solution: ReadSolution, settings: TrainConfig, named: HostTowers) -> TowerRow | None:
    """The modules of the model's towers, if it has any; ``named``: the towers by which hosts exchange."""
    from headrace.screens.training import TowerRow
    from trainer.job.host.tower_weights import has_own_modules
    from trainer.model.tower_shapes import tower_shapes
    from trainer.run.preparation.preparation import described

    if settings.tower_modules is None or not settings.deep:
        return None
    _, layout = described(solution, settings)
    shapes = tower_shapes(layout.features, settings)
    if shapes is None:
        return None
    columns, outputs = (sum(getattr(one, name) for one in shapes.towers) for name in ("columns", "width"))
    is_own = bool(named) and has_own_modules(layout, settings, named.towers)
    return TowerRow(len(shapes.towers), columns, outputs, shapes.compression, is_own)
