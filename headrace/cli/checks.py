"""``headrace checks``: the values of a model's inputs over time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.completions import model_names
from headrace.cli.options.listings import listing
from headrace.cli.options.metrics import needs_prometheus
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit
from headrace.terminal.progress import progress_bar
from headrace.terminal.quantities import moment_of, span_of
from transforms.errors import DataError, InputError, StorageError

if TYPE_CHECKING:
    from headrace.screens.drift import DriftScreen

app = typer.Typer(
    help="Compare the inputs of a model with those of earlier partitions; show them by partition.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ModelName = Annotated[
    str, typer.Argument(autocompletion=model_names, help="Name of a submitted model, or NAME@VERSION.")
]


@app.command("run")
def run(
    model: ModelName,
    against: Annotated[
        str, typer.Option(help="The time before the newest partitions that is compared: 7d, 24h.")
    ] = "7d",
    last: Annotated[str, typer.Option(help="The time of the newest partitions: 1d, 6h.")] = "1d",
    end: Annotated[
        str, typer.Option(help="The end of the newest partitions (ISO 8601, UTC). Default: that of the table.")
    ] = "",
    psi: Annotated[
        float, typer.Option(min=0.0, help="The greatest population stability index of an input without an own limit.")
    ] = 0.2,
    ks: Annotated[float, typer.Option(min=0.0, max=1.0, help="The greatest Kolmogorov-Smirnov distance.")] = 0.1,
    empty: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The greatest change of the share of nulls and empty lists.")
    ] = 0.05,
    metrics: Annotated[
        str,
        typer.Option(
            metavar="FILE.prom",
            help="Also write the figures for Prometheus, for the textfile collector of its node exporter.",
        ),
    ] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Compare the newest partitions of a model's inputs and labels with those before. Exit status 3 if one has drifted.

    Sketches of partitions are stored: each is read once for all models. Limits of an input are those of the model file: model.input(..., expect=...).
    """
    from headrace.checks.drift import Limits
    from headrace.views.drift import drift

    if metrics and not metrics.endswith(".prom"):
        raise InputError(
            "the file of metrics must have the suffix that the collector reads",
            where="--metrics",
            value=metrics,
            allowed="*.prom",
        )
    spans = [timedelta(seconds=span_of(option, text)) for option, text in (("--against", against), ("--last", last))]
    with open_warehouse(home) as warehouse, progress_bar(f"reading {model}", "events") as report:
        screen = drift(
            warehouse,
            model,
            against=spans[0],
            last=spans[1],
            end=moment_of("--end", end),
            limits=Limits(psi, ks, empty),
            progress=report,
        )
    if metrics:
        _write_metrics(screen, metrics)
    emit(screen, as_json=as_json)
    if screen.failed:
        raise typer.Exit(DataError.exit_status)


@app.command("show")
@listing(watch=False)
def show(
    model: ModelName,
    column: Annotated[str, typer.Argument(metavar="INPUT", help="An input of the model, or label.")],
    start: Annotated[str, typer.Option(help="Partitions from this time on (ISO 8601, UTC).")] = "",
    end: Annotated[str, typer.Option(help="Partitions that start before this time.")] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show the values of an input, or of the label, by partition: nulls, distinct ids, quartiles, lengths, label rate, most frequent ids."""
    from headrace.views.drift import sketches

    first, last = moment_of("--start", start), moment_of("--end", end)
    with open_warehouse(home) as warehouse, progress_bar(f"reading {model}", "events") as report:
        screen = sketches(warehouse, model, column, start=first, end=last, progress=report)
    emit(screen, as_json=as_json)


def _write_metrics(screen: DriftScreen, file: str) -> None:
    """Write the figures at once: the collector must not read half of them."""
    with needs_prometheus("--metrics"):
        from headrace.metrics.exposition import text_of
    from headrace.metrics.drift import InputDrift, drift_families
    from pipelines.outputs.publication import write_atomic

    inputs = [
        InputDrift(one.input, one.psi, one.ks, one.new_share, one.empty_share, len(one.findings))
        for one in screen.inputs
    ]
    try:
        write_atomic(Path(file), text_of(drift_families(screen.model, inputs)))
    except OSError as error:
        raise StorageError("the file of metrics cannot be written", where="--metrics", value=str(error)) from error
