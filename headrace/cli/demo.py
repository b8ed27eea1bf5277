"""``headrace demo``: from logs to a trained model, on a generated log or on real ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options.session import AsJson, home_folder
from headrace.terminal.output import emit
from headrace.terminal.progress import progress_bar


def demo(
    logs: Annotated[str, typer.Option(help="Folder or file of real logs. Default: generate a search-ads log.")] = "",
    log_format: Annotated[str, typer.Option("--format", help="sample, globo, movielens, criteo or obd.")] = "sample",
    seed: Annotated[int, typer.Option(help="Seed of the generated log and of the time of the kill.")] = 7,
    hours: Annotated[int, typer.Option(help="Hours of the generated log.")] = 48,
    rows_per_hour: Annotated[int, typer.Option(help="Mean events per hour of the generated log.")] = 12_000,
    negatives: Annotated[float, typer.Option(help="Negatives drawn per click (globo, movielens).")] = 1.0,
    home: Annotated[str, typer.Option(help="Folder to work in; emptied first. Default: demo/FORMAT in the home.")] = "",
    as_json: AsJson = False,
) -> None:
    """Go from raw logs to a trained model: register, submit, memoize, train, kill -9, resume, measure."""
    from headrace.demo.needs import check_needs
    from headrace.demo.registry import script
    from headrace.demo.sample_log import SampleLogConfig

    chosen = script(log_format, SampleLogConfig(seed=seed, hours=hours, mean_rows_per_hour=rows_per_hour))
    check_needs(chosen, logs)

    from headrace.demo.play import Demo
    from headrace.demo.scripts import LogOptions
    from headrace.screens.demo import demo_screen

    folder = Path(home or Path(home_folder("", "the demo", creates=True)) / "demo" / log_format).resolve()
    played = Demo(
        chosen,
        folder,
        transcript=sys.stderr if as_json else sys.stdout,
        progress_bar=progress_bar,
        options=LogOptions(negatives_per_positive=negatives, seed=seed),
        seed=seed,
    )
    emit(demo_screen(chosen.first, folder, played.play(logs)), as_json=as_json)
