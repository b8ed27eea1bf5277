"""``headrace prune``: what the budget of a run with pruned tables has bought."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.runs import Run, RunVersion, run_folder
from headrace.cli.options.session import AsJson, Home
from headrace.terminal.output import emit, say, write_output
from transforms.errors import InputError, NotFound

if TYPE_CHECKING:
    from trainer.config import TrainConfig
    from trainer.planning.kept_importance import KeptImportance
    from trainer.training.saved_run import SavedRun

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
    svg: Annotated[str, typer.Option(metavar="FILE", help="Also draw the curves of importance to this SVG file.")] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show the rows that each table keeps, and the share of the importance that they have.

    From the newest checkpoint of a run with the training option pruning.
    """
    from headrace.screens.importance_drawing import importance_svg
    from headrace.screens.pruning import PruningScreen
    from trainer.config import TrainConfig
    from trainer.training.saved_run import read_newest_run

    folder = run_folder(run, version, home)
    saved = read_newest_run(folder, on_skip=lambda reason: say(f"a checkpoint was skipped: {reason}"))
    if saved is None:
        raise NotFound("the run directory must hold a checkpoint", where=folder, next_step="train first")
    config = TrainConfig.from_document(saved.identity.config, run_dir=folder)
    if config.pruning is None:
        raise InputError("the tables of a run must be pruned to have a report", where=folder, value="a run without the option pruning",
                         next_step='headrace train MODEL --config with {"pruning": {"budget": 0.5}}')  # fmt: skip
    tables, rounds = _tables_of(saved, config)
    if svg:
        write_output(svg, importance_svg(tables) + "\n", option="--svg")
    emit(
        PruningScreen(folder, saved.number, saved.progress.step, rounds, config.pruning.budget, tables, svg),
        as_json=as_json,
    )


def _tables_of(saved: SavedRun, config: TrainConfig) -> tuple[tuple[KeptImportance, ...], int]:
    """The importance of the rows of all tables, and the rounds that there were."""
    from trainer.model.inputs import lay_out
    from trainer.planning.kept_importance import kept_importance
    from trainer.training.pruned_tables import saved_importance
    from trainer.training.saved_tables import own_place

    sizes = {one.table.name: one.table.vocabulary_size for one in lay_out(saved.identity.typed_inputs, config).features}
    found, rounds = [], 0
    for kind in ("embedding", "linear"):
        names = [name for name in sizes if f"{kind}/rows/{name}" in saved.arrays]
        for name, history in saved_importance(saved.arrays, partial(own_place, kind), names).items():
            kept, columns = saved.arrays[f"{kind}/rows/{name}"], saved.arrays[f"{kind}/weights/{name}"].shape[1]
            label = name if kind == "embedding" else f"linear {name}"
            found.append(kept_importance(label, sizes[name], columns, kept, history.rows, history.importance))
            rounds = max(rounds, history.rounds)
    return tuple(found), rounds
