"""``headrace predict``: score partitions with a trained model."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.beam import BeamOptions, Runner
from headrace.cli.options.metrics import MetricsOptions
from headrace.cli.options.option_groups import grouped
from headrace.cli.options.runs import (
    ModelOrRun,
    RunDir,
    ScoredFrom,
    ScoredUntil,
    ScoredVersion,
    named_run,
    run_folder_of,
)
from headrace.cli.options.scoring_hosts import (
    Hosts,
    HostsToken,
    Meeting,
    Rank,
    ScoringHosts,
    Supervisor,
    TableVersion,
    predicting_command,
    scoring_hosts,
)
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.cli.options.solutions import pinned
from headrace.terminal.output import emit, say
from headrace.terminal.progress import Report, progress_bar
from headrace.terminal.quantities import moment_of
from headrace.terminal.quiet import keep_tensorflow_quiet
from headrace.terminal.units import many
from trainer.job.launch.role_signals import end_with_supervisor
from transforms.errors import DataError, InputError, NotFound
from transforms.metrics.registry import Registry

if TYPE_CHECKING:
    from headrace.metrics.scoring import ScoringMetrics
    from pipelines.scoring import Score, ScoringConfig, ScoringReport
    from trainer.job.scoring.shared_scoring import ScoringChannels
    from trainer.run.weights.saved_run import SavedRun
    from trainer.tables.routes.exchange import Exchange
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse


@grouped
def predict(
    model: ModelOrRun,
    output: Annotated[str, typer.Option(help="Local folder of the scores: PARTITION/scores-*.parquet.")],
    run_dir: RunDir = "",
    version: ScoredVersion = 0,
    start: ScoredFrom = "",
    end: ScoredUntil = "",
    columns: Annotated[
        str,
        typer.Option(
            help="Raw columns to write with the scores, separated by commas, beside partition, fragment, row and time."
        ),
    ] = "",
    runner: Runner = "DirectRunner",
    beam_options: BeamOptions = None,
    hosts: Hosts = "",
    rank: Rank = -1,
    token_file: HostsToken = "",
    home: Home = "",
    as_json: AsJson = False,
    meeting: Meeting = "",
    supervisor: Supervisor = 0,
    table_version: TableVersion = 0,
    *,
    metrics: MetricsOptions,
) -> None:
    """Score partitions with the newest checkpoint of a trained model. Row i of a file is event i of its fragment.

    Running the command again scores new data and what failed before.
    """
    began = time.monotonic()
    if supervisor:
        end_with_supervisor(supervisor)
    together = scoring_hosts(hosts, rank, token_file, meeting)
    if together is not None and (runner != "DirectRunner" or beam_options):
        raise InputError("--hosts needs no Beam runner", where="--runner", value=runner, next_step="leave out --runner and --beam-option, or --hosts")  # fmt: skip
    from headrace.metrics.process import Process
    from headrace.metrics.scoring import ScoringMetrics
    from headrace.scoring import load_scores
    from headrace.views.predictions import predicted
    from pipelines.runners.runner import RunnerOptions
    from pipelines.scoring import ScoringConfig, score_partitions

    first, last = moment_of("--start", start), moment_of("--end", end)
    options = RunnerOptions(runner, flags=tuple(beam_options or ()))
    named = named_run(model, version, run_dir)
    model = named.model
    recorded, registry = ScoringMetrics("partition" if together is None else "file"), Registry()
    registry.add("predict", recorded.families)
    with (
        metrics.bound(Process("predict", model, run=named.run_dir)) as serve,
        open_warehouse(home) as warehouse,
        pinned(warehouse, model, named.version, first, last, "predict", table_version) as solution,
    ):
        serve(registry)
        folder = run_folder_of(named.run_dir, model, solution.model_version, home)
        raw, time_column = _raw_columns(warehouse, solution.table, columns)
        configure = partial(
            ScoringConfig, home=warehouse.storage.home, output=output, columns=raw, time_column=time_column
        )
        if together is None:
            saved = _saved(folder, model)
            _check(saved, solution, folder)
            with progress_bar(f"scoring {model}", "partitions") as shown:
                report = _both(shown, recorded.report)
                config = configure(source=saved.digest, load=partial(load_scores, folder, saved.path))
                done, checkpoint = score_partitions(solution, config, options, progress=report), saved.name
        else:
            command = partial(
                predicting_command, model, solution.model_version, folder, start, end, columns, output, home, together.hosts, solution.table_version
            )  # fmt: skip
            done, checkpoint = _predict_together(solution, folder, configure, together, command, recorded)
    if together is not None and together.rank:
        return say(f"host {together.rank} has scored {many(done.rows, 'event')}: host 0 shows the sum")
    screen = predicted(solution, done, checkpoint, output, time.monotonic() - began)
    emit(screen, as_json=as_json)
    if done.failures:
        raise typer.Exit(DataError.exit_status)


def _predict_together(
    solution: ReadSolution,
    folder: str,
    configure: Callable[..., ScoringConfig],
    together: ScoringHosts,
    command: Callable[[int, Path], Sequence[str]],
    recorded: ScoringMetrics,
) -> tuple[ScoringReport, str]:
    """Write the scores by all hosts at once; what they have done, on the first one, and the checkpoint."""
    keep_tensorflow_quiet()
    from pipelines.scoring import score_share
    from trainer.job.scoring.shared_model import shared_model

    def attempt(channels: ScoringChannels) -> tuple[ScoringReport, str]:
        own = shared_model(
            folder, solution, channels, on_skip=lambda reason: say(f"a checkpoint was skipped: {reason}")
        )
        config = configure(source=own.saved.digest, load=_unused)
        steps = channels.steps
        done = score_share(solution, config, steps.rank, steps.hosts, own.predict, report)
        return _summed(done, steps), own.saved.name

    with progress_bar("scoring", "files") as shown:
        report = _both(shown, recorded.report)
        return together.run(command, attempt, say)


def _both(one: Report, other: Report) -> Report:
    """Reports progress to both."""

    def report(done: int, total: int, current: str = "") -> None:
        one(done, total, current)
        other(done, total, current)

    return report


def _unused() -> Score:
    raise AssertionError("hosts score by the model that they have together")


def _summed(own: ScoringReport, steps: Exchange) -> ScoringReport:
    """What all hosts have done, on the first one; elsewhere what this one has done."""
    from pipelines.runners.error_documents import error_document, error_from_document
    from pipelines.scoring import ScoringReport
    from trainer.evaluation.shared_arrays import gather_bytes, gather_numbers

    files, rows, known = gather_numbers(steps, [own.files, own.rows, own.known_files]).sum(axis=0).tolist()
    heard = gather_bytes(steps, json.dumps([error_document(one) for one in own.failures]).encode(), to=0)
    if steps.rank:
        return own
    failures = tuple(error_from_document(one) for content in heard for one in json.loads(content))
    return ScoringReport(own.partitions, files, rows, known, failures)


def _raw_columns(warehouse: Warehouse, table: str, columns: str) -> tuple[tuple[str, ...], str]:
    """The raw columns that are asked for, each once, and the table's time column. Raises :class:`~transforms.errors.UnknownColumn`."""
    from warehouse.tables.manifests import get_table

    with warehouse.catalog.read() as connection:
        found = get_table(connection, table)
    asked = dict.fromkeys(name for one in columns.split(",") if (name := one.strip()))
    return tuple(found.column(name).name for name in asked), found.time_column or ""


def _saved(run_dir: str, model: str) -> SavedRun:
    from trainer.run.weights.saved_run import read_newest_run

    saved = read_newest_run(run_dir, on_skip=lambda reason: say(f"a checkpoint was skipped: {reason}"))
    if saved is None:
        raise NotFound("a run must have a checkpoint to predict with, got none", where=run_dir,
                       next_step=f"headrace train {model}, or name the run with --run-dir")  # fmt: skip
    return saved


def _check(saved: SavedRun, solution: ReadSolution, run_dir: str) -> None:
    """Raise, before anything is computed, if the run was trained on other inputs."""
    from trainer.options.config import TrainConfig
    from trainer.run.progress.identity import check_inputs, identity_of

    config = TrainConfig.from_document(saved.identity.config, run_dir=run_dir)
    check_inputs(saved.identity, identity_of(solution, config))
