"""``headrace prune``: what the budget of a run with pruned tables has bought."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options.runs import Run, RunDir, RunVersion, run_folder
from headrace.cli.options.session import AsJson, Home
from headrace.terminal.output import emit, say, write_output
from transforms.errors import InputError, NotFound

app = typer.Typer(
    help="Show what the budget of a run with pruned tables has bought.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """A group also while it has one command."""


@app.command("report")
def report(
    run: Run,
    version: RunVersion = 0,
    run_dir: RunDir = "",
    svg: Annotated[str, typer.Option(metavar="FILE", help="Also draw the curves of importance to this SVG file.")] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show the rows that each table keeps, and the share of the importance that they have.

    From the newest checkpoint of a run with the training option pruning.
    """
    from headrace.screens.importance_drawing import importance_svg
    from headrace.screens.pruning import PruningScreen
    from trainer.options.config import TrainConfig
    from trainer.planning.kept_importance import unpruned_share
    from trainer.run.weights.kept_rows import kept_rows_of
    from trainer.run.weights.saved_run import read_newest_run

    folder = run_folder(run, version, home, run_dir)
    saved = read_newest_run(folder, on_skip=lambda reason: say(f"a checkpoint was skipped: {reason}"))
    if saved is None:
        raise NotFound("the run directory must hold a checkpoint", where=folder, next_step="train first")
    config = TrainConfig.from_document(saved.identity.config, run_dir=folder)
    if config.pruning is None:
        raise InputError("headrace prune needs a run with pruned tables", where=folder, value="a run without the option pruning",
                         next_step='headrace train MODEL --config with {"pruning": {"budget": 0.5}}')  # fmt: skip
    kept = kept_rows_of(saved, config)
    if svg:
        write_output(svg, importance_svg(kept.tables) + "\n", option="--svg")
    screen = PruningScreen(
        folder, saved.number, saved.progress.step, kept.rounds, config.pruning.budget, kept.tables,
        unpruned_share(kept.tables), svg,
    )  # fmt: skip
    emit(screen, as_json=as_json)
