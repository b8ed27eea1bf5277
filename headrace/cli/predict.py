"""``headrace predict``: score partitions with a trained model."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.beam import BeamOptions, Runner
from headrace.cli.options.quantities import moment_of
from headrace.cli.options.runs import (
    ModelOrRun,
    RunDir,
    ScoredFrom,
    ScoredUntil,
    ScoredVersion,
    named_run,
    run_folder_of,
)
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.cli.options.solutions import pinned
from headrace.terminal.output import emit, say
from headrace.terminal.progress import progress_bar
from transforms.errors import DataError, NotFound

if TYPE_CHECKING:
    from trainer.run.weights.saved_run import SavedRun
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse


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
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Score partitions with the newest checkpoint of a trained model. Row i of a file is event i of its fragment.

    Running the command again scores new data and what failed before.
    """
    began = time.monotonic()
    from headrace.scoring import load_scores
    from headrace.screens.predict import PredictedScreen
    from pipelines.runners.runner import RunnerOptions
    from pipelines.scoring import ScoringConfig, score_partitions

    first, last = moment_of("--start", start), moment_of("--end", end)
    options = RunnerOptions(runner, flags=tuple(beam_options or ()))
    named = named_run(model, version, run_dir)
    model = named.model
    with open_warehouse(home) as warehouse, pinned(warehouse, model, named.version, first, last, "predict") as solution:
        folder = run_folder_of(named.run_dir, model, solution.model_version, home)
        raw, time_column = _raw_columns(warehouse, solution.table, columns)
        saved = _saved(folder, model)
        _check(saved, solution, folder)
        config = ScoringConfig(
            home=warehouse.storage.home,
            output=output,
            source=saved.digest,
            load=partial(load_scores, folder, saved.path),
            columns=raw,
            time_column=time_column,
        )
        with progress_bar(f"scoring {model}", "partitions") as report:
            done = score_partitions(solution, config, options, progress=report)
    screen = PredictedScreen(
        model=model,
        version=solution.model_version,
        checkpoint=saved.name,
        output=output,
        partitions=done.partitions,
        files=done.files,
        rows=done.rows,
        known_files=done.known_files,
        failures=tuple(f"{error.where}: {error.what}" for error in done.failures),
        secs=time.monotonic() - began,
    )
    emit(screen, as_json=as_json)
    if done.failures:
        raise typer.Exit(DataError.exit_status)


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
