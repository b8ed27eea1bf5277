"""``headrace evaluate``: the figures of a trained model on partitions, also by the values of raw columns."""

from __future__ import annotations

import time
from functools import partial
from pathlib import PurePath
from typing import Annotated

import typer

from headrace.cli.held_out_scoring import fragment_reader
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
from headrace.terminal.quiet import import_tensorflow_quietly
from transforms.errors import InputError


def evaluate(
    model: ModelOrRun,
    run_dir: RunDir = "",
    version: ScoredVersion = 0,
    start: ScoredFrom = "",
    end: ScoredUntil = "",
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Also show the figures by the values of a raw column; may be repeated."),
    ] = None,
    most: Annotated[int, typer.Option(help="The values of a column that are shown, those of most events.")] = 20,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Score labelled events with the newest checkpoint of a trained model, and show how good the predictions are."""
    began = time.monotonic()
    from headrace.screens.evaluation import evaluation_screen
    from warehouse.reading.reader import read_labels
    from warehouse.tables.manifests import get_table

    if not 1 <= most <= 100_000:
        raise InputError("an option must be in its range", where="--most", value=most, allowed="1 to 100000")
    first, last = moment_of("--start", start), moment_of("--end", end)
    named, columns = named_run(model, version, run_dir), tuple(dict.fromkeys(by or ()))
    with (
        open_warehouse(home) as warehouse,
        pinned(warehouse, named.model, named.version, first, last, "evaluate") as solution,
    ):
        with warehouse.catalog.read() as connection:
            table = get_table(connection, solution.table)
        for name in columns:
            table.column(name)  # raises for an unknown one, before anything is scored
        folder = run_folder_of(named.run_dir, named.model, solution.model_version, home)
        import_tensorflow_quietly()
        from trainer.serving.segmented import evaluate_by
        from trainer.serving.trained import load_trained

        trained = load_trained(folder, on_skip=lambda reason: say(f"a checkpoint was skipped: {reason}"))
        read = partial(read_labels, warehouse.storage, solution, columns=list(columns))
        with progress_bar(f"scoring {named.model}", "events") as report:
            found = evaluate_by(
                trained, solution, fragment_reader(warehouse, solution), columns, read, most=most, progress=report
            )
    screen = evaluation_screen(
        solution, found, PurePath(trained.checkpoint).name, trained.progress, time.monotonic() - began
    )
    emit(screen, as_json=as_json)
