"""``headrace towers``: divide the features of a model into towers, and show them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.held_out_scoring import fragment_reader
from headrace.cli.options.completions import model_names
from headrace.cli.options.files import read_file
from headrace.cli.options.runs import run_folder_of
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.cli.options.solutions import pinned
from headrace.cli.options.training import read_options
from headrace.cli.plan import TablesToPlan, tables_of_model
from headrace.terminal.output import emit, say, write_output
from headrace.terminal.progress import progress_bar
from headrace.terminal.quantities import moment_of
from headrace.terminal.units import count_text
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.options.config import TrainConfig
    from trainer.planning.towers.agreement import Agreement
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


@dataclass(frozen=True, slots=True)
class _Found:
    """The interactions of features with their source in words; none of strided towers. ``agreement``: of two trainings, None of one."""

    interactions: Interactions | None = None
    source: str = ""
    agreement: Agreement | None = None


TowersSvg = Annotated[str, typer.Option("--svg", metavar="FILE", help="Also draw the towers to this SVG file.")]


@app.command("make")
def make(
    model: Annotated[str, typer.Argument(autocompletion=model_names, help="Name of a submitted model.")],
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
            help="Folder of a trained DLRM whose interactions are sampled. Default: two DLRMs are trained for this."
        ),
    ] = "",
    probe_events: Annotated[
        int, typer.Option(help="The newest events on which each of the two DLRMs is trained, in whole partitions.")
    ] = 500_000,
    events: Annotated[int, typer.Option(help="The events that are sampled.")] = 10_000,
    largest: Annotated[
        float,
        typer.Option(help="The most that a tower may have of what is balanced, by the mean; 1: all have equally much."),
    ] = 1.0,
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
        typer.Option(help="A JSON file of training options of the model, without --run-dir: docs/training.md."),
    ] = "",
    output: Annotated[str, typer.Option(metavar="FILE", help="Write the towers to this file.")] = "",
    svg: TowersSvg = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Divide the features of a model into towers of about equal size, by how they interact in trained DLRMs; print the towers."""
    from headrace.screens.tower_drawing import towers_svg
    from headrace.screens.towers import towers_screen
    from trainer.options.config import TrainConfig
    from trainer.planning.towers.partitioner import make_towers
    from trainer.planning.towers.plane import STRIDED
    from trainer.planning.towers.tower_document import towers_bytes
    from trainer.planning.towers.tower_plan import check_hosts, check_tower_count

    _check_words(strategy, balance)
    _check_numbers(events, probe_events, seed, hosts, largest)
    if config and run_dir:
        raise InputError("--config needs training options that no run has", where="--config", value=config,
                         next_step="leave out --config: the options are those of the run; or leave out --run-dir")  # fmt: skip
    given = read_options(config)
    options = TrainConfig.from_document(given, run_dir="none")
    to_plan = tables_of_model(home, model, version, options, None)
    check_tower_count(towers, len(to_plan.features), where="--towers")
    if hosts:
        check_hosts(towers, hosts, where="--hosts")
    if strategy == STRIDED:
        _check_strided(svg, largest)
        found = _Found()
    else:
        first, last = moment_of("--start", start), moment_of("--end", end)
        with (
            open_warehouse(home) as warehouse,
            pinned(warehouse, model, version, first, last, "towers make") as solution,
        ):
            trained = _trained(run_dir, model, solution.model_version, home) if run_dir else None
            if trained is not None:
                options = trained.config
                to_plan = tables_of_model(home, model, version, options, None)
            check_tower_count(towers, len(to_plan.facts), of="tables", where="--towers")
            if trained is not None:
                found = _sampled(trained, warehouse, solution, events)
            else:
                found = _probed(warehouse, solution, given, probe_events, events, seed)
    plan = make_towers(
        _features(to_plan, options), towers, strategy=strategy, balance=balance, seed=seed, interactions=found.interactions,
        source=found.source, agreement=found.agreement, largest=largest,
    )  # fmt: skip
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


def _check_words(strategy: str, balance: str) -> None:
    from trainer.planning.towers.plane import STRATEGIES
    from trainer.planning.towers.tower_plan import BALANCES

    for option, value, allowed in (("--strategy", strategy, STRATEGIES), ("--balance", balance, BALANCES)):
        if value not in allowed:
            raise InputError(
                "an option must be a known word", where=option, value=value[:80], allowed=", ".join(allowed)
            )


def _check_numbers(events: int, probe_events: int, seed: int, hosts: int, largest: float) -> None:
    in_range = (1 <= events <= 10_000_000, probe_events >= 1, 0 <= seed < 1 << 63, hosts >= 0, 1 <= largest < math.inf)
    if not all(in_range):
        raise InputError("an option must be in its range", where="--events, --probe-events, --seed, --hosts, --largest",
                         value=(events, probe_events, seed, hosts, largest), allowed="1 to 10000000, >= 1, >= 0, >= 0, >= 1")  # fmt: skip


def _check_strided(svg: str, largest: float) -> None:
    if svg:
        raise InputError("a drawing needs points of features, which strided towers do not have", where="--svg", value="strided",
                         allowed="diverse, coherent")  # fmt: skip
    if largest != 1:
        raise InputError("--largest needs a strategy that groups features", where="--largest", value=largest, allowed="diverse, coherent")  # fmt: skip


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


def _probed(
    warehouse: Warehouse, solution: ReadSolution, options: Mapping[str, Any], trained: int, sampled: int, seed: int
) -> _Found:
    """The interactions of features in two DLRMs that are trained for this."""
    from headrace.terminal.quiet import import_tensorflow_quietly

    import_tensorflow_quietly()
    from trainer.serving.interaction_probe import probe_interactions

    with progress_bar(f"training two DLRMs on {solution.model}", "events") as report:
        found = probe_interactions(
            solution, fragment_reader(warehouse, solution), options, most_trained=trained, most_sampled=sampled, seed=seed, progress=report
        )  # fmt: skip
    source = f"two DLRMs, each trained on {count_text(found.trained_events)} events"
    return _Found(found.interactions, source, found.agreement)


def _trained(run_dir: str, model: str, version: int, home: str) -> Trained:
    """The model of a run, a DLRM. Raises :class:`NotFound` without a checkpoint, and :class:`InputError` for another network."""
    from headrace.terminal.quiet import import_tensorflow_quietly

    folder = run_folder_of(run_dir, model, version, home)
    import_tensorflow_quietly()
    from trainer.serving.trained import load_trained

    trained = load_trained(folder, on_skip=lambda reason: say(f"a checkpoint was skipped: {reason}"))
    if trained.config.deep and trained.config.network != "dlrm":
        raise InputError("the run whose interactions are sampled must be one of a DLRM", where="--run-dir", value=f"{folder}: network {trained.config.network}",
                         next_step="leave out --run-dir: two DLRMs are trained for this. Embeddings of other networks have related directions "
                         "for other reasons than interaction")  # fmt: skip
    return trained


def _sampled(trained: Trained, warehouse: Warehouse, solution: ReadSolution, events: int) -> _Found:
    """The interactions of a model's features over a sample of its data."""
    from trainer.serving.feature_interactions import sample_interactions
    from warehouse.reading.reader import read_fragment

    read = partial(read_fragment, warehouse.storage, solution, rows=True)
    with progress_bar(f"sampling {solution.model}", "events") as report:
        found = sample_interactions(trained, solution, read, events, progress=report)
    return _Found(found, f"run {Path(trained.config.run_dir).name}, checkpoint {Path(trained.checkpoint).name}")
