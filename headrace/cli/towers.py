"""``headrace towers``: divide the features of a model into towers, and show them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.files import read_file
from headrace.cli.options.quantities import moment_of
from headrace.cli.options.runs import run_folder_of
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.cli.options.solutions import pinned
from headrace.cli.options.training import read_options
from headrace.cli.plan import TablesToPlan, tables_of_model
from headrace.terminal.output import emit, say, write_output
from headrace.terminal.progress import progress_bar
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.options.config import TrainConfig
    from trainer.planning.towers.interactions import Interactions
    from trainer.planning.towers.tower_plan import TowerFeature
    from trainer.serving.trained import Trained
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse

app = typer.Typer(
    help="Divide the features of a model into towers, groups whose embedding tables share a host.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TowersSvg = Annotated[str, typer.Option("--svg", metavar="FILE", help="Also draw the towers to this SVG file.")]


@app.command("make")
def make(
    model: Annotated[str, typer.Argument(help="Name of a submitted model.")],
    towers: Annotated[int, typer.Option(help="The number of towers.")],
    strategy: Annotated[
        str,
        typer.Option(
            help="diverse: features that interact are in different towers; coherent: in one; strided: feature i is in tower i modulo N."
        ),
    ] = "diverse",
    balance: Annotated[
        str,
        typer.Option(
            help="What towers have about equally much of: features, bytes of tables, or load (bytes that events look up)."
        ),
    ] = "features",
    run_dir: Annotated[
        str,
        typer.Option(
            help="Folder of the trained run whose interactions are sampled. Default: runs/MODEL-vVERSION in the home."
        ),
    ] = "",
    events: Annotated[int, typer.Option(help="The events that are sampled.")] = 10_000,
    start: Annotated[str, typer.Option(help="Sample partitions from this time on (ISO 8601, UTC).")] = "",
    end: Annotated[str, typer.Option(help="Sample partitions that start before this time.")] = "",
    hosts: Annotated[
        int, typer.Option(help="Check that so many hosts can be divided equally among the towers.", show_default=False)
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of the points and of the groups.")] = 0,
    version: Annotated[
        int, typer.Option("--version", help="The model's version. Default: the newest.", show_default=False)
    ] = 0,
    config: Annotated[
        str,
        typer.Option(
            help="A JSON file of training options, for strided towers of a model that is not trained yet: docs/training.md."
        ),
    ] = "",
    output: Annotated[str, typer.Option(metavar="FILE", help="Write the towers to this file.")] = "",
    svg: TowersSvg = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Divide the features of a model into towers of about equal size, by how they interact in a trained run; print the towers."""
    from headrace.screens.tower_drawing import towers_svg
    from headrace.screens.towers import towers_screen
    from trainer.options.config import TrainConfig
    from trainer.planning.towers.partitioner import make_towers
    from trainer.planning.towers.plane import STRATEGIES, STRIDED
    from trainer.planning.towers.tower_document import towers_bytes
    from trainer.planning.towers.tower_plan import BALANCES, check_hosts, check_tower_count

    for option, value, allowed in (("--strategy", strategy, STRATEGIES), ("--balance", balance, BALANCES)):
        if value not in allowed:
            raise InputError(
                "an option must be a known word", where=option, value=value[:80], allowed=", ".join(allowed)
            )
    if not 1 <= events <= 10_000_000 or not 0 <= seed < 1 << 63 or hosts < 0:
        raise InputError("an option must be in its range", where="--events, --seed, --hosts", value=(events, seed, hosts),
                         allowed="1 to 10000000, >= 0, >= 0")  # fmt: skip
    if config and strategy != STRIDED:
        raise InputError("--config needs --strategy strided: other strategies use the options of the run", where="--config",
                         value=config, allowed=f"--strategy {STRIDED}")  # fmt: skip
    options = TrainConfig.from_document(read_options(config), run_dir="none")
    to_plan = tables_of_model(home, model, version, options, None)
    check_tower_count(towers, len(to_plan.features), where="--towers")
    if hosts:
        check_hosts(towers, hosts, where="--hosts")
    if svg and strategy == STRIDED:
        raise InputError("a drawing needs points of features, which strided towers do not have", where="--svg", value=strategy,
                         allowed="diverse, coherent")  # fmt: skip
    interactions, source = None, ""
    if strategy != STRIDED:
        first, last = moment_of("--start", start), moment_of("--end", end)
        with (
            open_warehouse(home) as warehouse,
            pinned(warehouse, model, version, first, last, "towers make") as solution,
        ):
            trained = _trained(run_dir, model, solution.model_version, home)
            options = trained.config
            to_plan = tables_of_model(home, model, version, options, None)
            check_tower_count(towers, len(to_plan.facts), of="tables", where="--towers")
            interactions = _sampled(trained, warehouse, solution, events)
        source = f"run {Path(trained.config.run_dir).name}, checkpoint {Path(trained.checkpoint).name}"
    plan = make_towers(_features(to_plan, options), towers, strategy=strategy, balance=balance, seed=seed, interactions=interactions, source=source)  # fmt: skip
    if output:
        write_output(output, towers_bytes(plan).decode(), option="--output")
    if svg:
        write_output(svg, towers_svg(plan) + "\n", option="--svg")
    emit(towers_screen(output, plan), as_json=as_json)


@app.command("show")
def show(
    towers: Annotated[str, typer.Argument(help="The file of towers that `headrace towers make --output` has written.")],
    svg: TowersSvg = "",
    as_json: AsJson = False,
) -> None:
    """Show towers: the features of each, their bytes, and how they interact."""
    from headrace.screens.tower_drawing import towers_svg
    from headrace.screens.towers import towers_screen
    from trainer.planning.towers.tower_document import read_towers

    plan = read_towers(read_file(towers, "towers"), towers)
    if svg:
        if not plan.points:
            raise InputError("a drawing needs towers with points of features", where=towers,
                             next_step="headrace towers make --strategy diverse writes them")  # fmt: skip
        write_output(svg, towers_svg(plan) + "\n", option="--svg")
    emit(towers_screen(towers, plan), as_json=as_json)


def _features(tables: TablesToPlan, options: TrainConfig) -> tuple[TowerFeature, ...]:
    from trainer.model.unbounded_tables import table_limits
    from trainer.planning.towers.tower_plan import MOST_TABLE_BYTES, TowerFeature
    from trainer.tables.spec import tables_of

    facts = {one.name: one for one in tables.facts}
    limits = table_limits(tables.features, options, [{one.name: one for one in tables_of(tables.features)}])
    sizes = {name: min(one.table_bytes, MOST_TABLE_BYTES) for name, one in facts.items()}
    sizes |= {name: one.capacity * facts[name].row_bytes for name, one in limits.items()}
    ids = {load.name: load.ids_per_event for one in tables.facts for load in one.features}
    return tuple(
        TowerFeature(
            feature.name,
            feature.table.name,
            sizes[feature.table.name],
            ids[feature.name] * facts[feature.table.name].row_bytes,
        )
        for feature in tables.features
    )


def _trained(run_dir: str, model: str, version: int, home: str) -> Trained:
    """The model of a run. Raises :class:`NotFound` without a checkpoint."""
    from headrace.terminal.quiet import import_tensorflow_quietly

    folder = run_folder_of(run_dir, model, version, home)
    import_tensorflow_quietly()
    from trainer.serving.trained import load_trained

    return load_trained(folder, on_skip=lambda reason: say(f"a checkpoint was skipped: {reason}"))


def _sampled(trained: Trained, warehouse: Warehouse, solution: ReadSolution, events: int) -> Interactions:
    """The interactions of a model's features over a sample of its data."""
    from trainer.serving.feature_interactions import sample_interactions
    from warehouse.reading.reader import read_fragment

    read = partial(read_fragment, warehouse.storage, solution, rows=True)
    with progress_bar(f"sampling {solution.model}", "events") as report:
        return sample_interactions(trained, solution, read, events, progress=report)
