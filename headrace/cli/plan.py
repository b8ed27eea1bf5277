"""``headrace plan``: make, show, explain and compare partition plans of embedding tables."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.completions import model_names
from headrace.cli.options.files import read_file
from headrace.cli.options.runs import Run, RunVersion, run_folder, run_folder_of
from headrace.cli.options.session import AsJson, Home, home_location, open_warehouse
from headrace.cli.options.training import read_options
from headrace.feature_statistics import read_document
from headrace.terminal.output import document, emit, say, write_output
from headrace.terminal.quantities import bytes_of
from headrace.terminal.units import many
from transforms.errors import InputError, NotFound

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from trainer.options.config import TrainConfig
    from trainer.planning.feature_statistics import FeatureStatistics
    from trainer.planning.plan import PartitionPlan
    from trainer.planning.plan_report import PlanReport, StackLimits
    from trainer.planning.planner import Planned, Search
    from trainer.planning.tables import FeatureLoad, TableFacts
    from trainer.tables.spec import FeatureSpec

app = typer.Typer(
    help="Plan which core has each row and column of the embedding tables.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

PlannedModel = Annotated[
    str, typer.Argument(autocompletion=model_names, help="Name of a submitted model, or --tables.", show_default=False)
]
Version = Annotated[
    int, typer.Option("--version", help="The model's version. Default: the newest.", show_default=False)
]
StatisticsRuns = Annotated[
    list[str] | None,
    typer.Option(
        "--run",
        help="A run whose statistics of features are used before the catalog's: its folder or the name of its model; may be repeated.",
        show_default=False,
    ),
]
TablesFile = Annotated[str, typer.Option(metavar="FILE", help="A JSON file of tables: docs/embedding-plans.md.")]
OptionsFile = Annotated[str, typer.Option(help="A JSON file of training options: docs/training.md.")]
Skew = Annotated[
    float, typer.Option(help="The exponent of the power law of ids, for tables of --tables that state none.")
]
PlanFile = Annotated[str, typer.Argument(help="The file of a plan that `headrace plan make --output` has written.")]


@app.command("make")
def make(
    topology: Annotated[
        str,
        typer.Option(
            help="What tables are planned for: a slice such as v5p:4x4x4, gpu:8, cpu:4 (simulated cores) or ps:16 (parameter servers)."
        ),
    ],
    model: PlannedModel = "",
    version: Version = 0,
    run: StatisticsRuns = None,
    tables: TablesFile = "",
    config: OptionsFile = "",
    batch_events: Annotated[
        int,
        typer.Option(help="Events of a step on all cores. Default: batch_rows of the options.", show_default=False),
    ] = 0,
    skew: Skew = 1.05,
    memory: Annotated[
        str,
        typer.Option(
            help="Memory of a core for tables, such as 20GiB. Default: that of the topology.", show_default=False
        ),
    ] = "",
    solver_secs: Annotated[
        float, typer.Option(help="How long OR-Tools searches for a better plan; 0: not at all.")
    ] = 10.0,
    output: Annotated[str, typer.Option(metavar="FILE", help="Write the plan to this file.")] = "",
    svg: Annotated[str, typer.Option(metavar="FILE", help="Also draw the plan to this SVG file.")] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Plan the tables of a model, or of a file, for a topology; print the plan with its estimates and its lower bound."""
    from headrace.screens.plan_drawing import plan_svg
    from headrace.screens.plans import plan_screen
    from trainer.planning.plan_document import plan_bytes, plan_fingerprint
    from trainer.planning.plan_report import report_of
    from trainer.planning.planner import make_plan
    from trainer.planning.topologies import topology_of

    if not 0 <= solver_secs <= 3600 or not 0 <= skew <= 8 or not 0 <= batch_events < 1 << 31:
        raise InputError("an option must be in its range", where="--solver-secs, --skew, --batch-events",
                         value=(solver_secs, skew, batch_events), allowed="0 to 3600, 0 to 8, 0 to 2147483647")  # fmt: skip
    found = topology_of(topology, memory_bytes=bytes_of("--memory", memory) or 0)
    options = _options_of(config)
    to_plan = _tables_to_plan(home, model, version, tables, options, run, skew)
    facts, sources = to_plan.facts, to_plan.sources
    events = batch_events or options.rows_of_step(found.cores)
    planned = make_plan(facts, found, events, search=_search(solver_secs))
    report = replace(report_of(planned, facts, sources), limits=_limits(planned, to_plan))
    if output:
        write_output(output, plan_bytes(planned.plan, report.to_document()).decode(), option="--output")
    if svg:
        write_output(svg, plan_svg(planned.plan, report) + "\n", option="--svg")
    emit(plan_screen(output, plan_fingerprint(planned.plan), planned.plan, report), as_json=as_json)


@app.command("show")
def show(
    plan: PlanFile,
    svg: Annotated[str, typer.Option(metavar="FILE", help="Also draw the plan to this SVG file.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show a plan: its tables, estimates and lower bound."""
    from headrace.screens.plan_drawing import plan_svg
    from headrace.screens.plans import plan_screen
    from trainer.planning.plan_document import plan_fingerprint

    found, report = _opened(plan)
    if svg:
        if report is None:
            raise InputError(
                "a drawing needs a plan with estimates", where=plan, next_step="headrace plan make writes them"
            )
        write_output(svg, plan_svg(found, report) + "\n", option="--svg")
    emit(plan_screen(plan, plan_fingerprint(found), found, report), as_json=as_json)


@app.command("explain")
def explain(
    plan: PlanFile,
    table: Annotated[str, typer.Argument(help="A table of the plan.")],
    as_json: AsJson = False,
) -> None:
    """Explain the placement of a table: its statistics, the ways that were possible, and its shards."""
    from headrace.screens.plans import explain_screen

    found, report = _opened(plan)
    names = [one.name for one in found.tables]
    if table not in names:
        raise NotFound("no such table in the plan", where=plan, value=table, allowed=", ".join(names)[:200])
    emit(explain_screen(found, found.of_table(table), report), as_json=as_json)


@app.command("diff")
def diff(
    before: PlanFile,
    after: Annotated[str, typer.Argument(help="The file of the other plan.")],
    as_json: AsJson = False,
) -> None:
    """Compare two plans: the tables that move, and the share of their values that moves."""
    from headrace.screens.plans import diff_screen
    from trainer.planning.plan_changes import changes_between

    (first, first_report), (second, second_report) = _opened(before), _opened(after)
    changes = changes_between(first, second)
    emit(diff_screen((before, after), (first, second), (first_report, second_report), changes), as_json=as_json)


@app.command("history")
def history(run: Run, version: RunVersion = 0, home: Home = "", as_json: AsJson = False) -> None:
    """Show how a training with --plan auto has changed the plan of its tables, and why."""
    from headrace.screens.plan_history import PlanHistoryScreen
    from trainer.job.feedback.plan_log import PlanLog

    folder = run_folder(run, version, home)
    log = PlanLog.read(folder)
    if not log.changes:
        raise NotFound(
            "this run has no plan that follows its data", where=folder, next_step="train with --hosts N --plan auto"
        )
    emit(PlanHistoryScreen.of(run, log), as_json=as_json)


@app.command("hot")
def hot(
    model: PlannedModel = "",
    share: Annotated[
        float, typer.Option(help="Memory for hot rows, as a share of the bytes of all tables with their slots.")
    ] = 0.1,
    memory: Annotated[
        str, typer.Option(help="Memory for hot rows, such as 20GiB, in place of --share.", show_default=False)
    ] = "",
    version: Version = 0,
    run: StatisticsRuns = None,
    tables: TablesFile = "",
    config: OptionsFile = "",
    skew: Skew = 1.05,
    output: Annotated[
        str, typer.Option(metavar="FILE", help="Write them to this file too, which hot_rows of --config may name.")
    ] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Say how many rows of each table to keep in the memory that trains, and the lookups that they serve."""
    from headrace.screens.hot_rows import hot_rows_screen
    from trainer.planning.hot_shares import hot_shares

    if not 0 <= share <= 1 or not 0 <= skew <= 8:
        raise InputError(
            "an option must be in its range", where="--share, --skew", value=(share, skew), allowed="0 to 1, 0 to 8"
        )
    to_plan = _tables_to_plan(home, model, version, tables, _options_of(config), run, skew)
    facts, sources = to_plan.facts, to_plan.sources
    all_bytes = sum(one.table_bytes for one in facts)
    stated = bytes_of("--memory", memory)
    budget = round(share * all_bytes) if stated is None else stated
    screen = hot_rows_screen(hot_shares(facts, budget), sources, budget, all_bytes)
    if output:
        write_output(output, json.dumps(document(screen), indent=2) + "\n", option="--output")
    emit(screen, as_json=as_json)


def _tables_to_plan(
    home: str, model: str, version: int, tables: str, options: TrainConfig, run: Sequence[str] | None, skew: float
) -> TablesToPlan:
    """The tables of a model or of a file."""
    if bool(model) == bool(tables):
        raise InputError("a plan needs either a model or a file of tables", where="MODEL, --tables", value=(model, tables),
                         allowed="one of them")  # fmt: skip
    if tables and run:
        raise InputError("--run must go with a model", where="--run", value=run, allowed="MODEL in place of --tables")
    if tables:
        return _tables_of_file(tables, skew)
    return tables_of_model(home, model, version, options, run)


def _opened(file: str) -> tuple[PartitionPlan, PlanReport | None]:
    from trainer.planning.plan_document import read_about, read_plan
    from trainer.planning.plan_report import PlanReport

    data = read_file(file, "plan")
    plan, report = read_plan(data, file), PlanReport.read(read_about(data, file), file)
    if report is not None and len(report.cores) != plan.cores:
        raise InputError("a plan must have the load of each of its cores", where=f"{file}.report.cores", value=len(report.cores),
                         allowed=str(plan.cores), next_step="headrace plan make writes a plan")  # fmt: skip
    return plan, report


def _search(solver_secs: float) -> Search | None:
    """The search by OR-Tools; None if it is not wanted, or not installed."""
    from trainer.solving.process import search_with

    if not solver_secs:
        return None
    if importlib.util.find_spec("ortools") is None:
        say("OR-Tools is not installed: the plan is that of the rule\n  next:    pip install 'headrace[plan]'")
        return None
    return search_with(solver_secs)


def _options_of(config: str) -> TrainConfig:
    from trainer.options.config import TrainConfig

    found = TrainConfig.from_document(read_options(config, hot_rows=False), run_dir="none")
    if found.hashed:
        raise InputError("a plan cannot place hashed tables", where="hashed, in --config", value=", ".join(found.hashed),
                         next_step="train hashed tables without a plan: headrace train without --plan")  # fmt: skip
    return found


def _tables_of_file(file: str, skew: float) -> TablesToPlan:
    """The tables of a file."""
    from trainer.planning.table_file import read_tables

    facts = read_tables(read_file(file, "--tables"), file, skew=skew)
    return TablesToPlan(facts, dict.fromkeys((one.name for one in facts), f"from {Path(file).name}"), (), {})


@dataclass(frozen=True)
class TablesToPlan:
    """Tables, where their statistics come from, and a model's features with the statistics that are known; a file has no features."""

    facts: Sequence[TableFacts]
    sources: Mapping[str, str]
    features: Sequence[FeatureSpec]
    statistics: Mapping[str, FeatureStatistics]


def tables_of_model(
    home: str, name: str, version: int, options: TrainConfig, runs: Sequence[str] | None
) -> TablesToPlan:
    """The tables of a model, with the statistics of its features that are known, and with what is assumed of the others."""
    from trainer.model.inputs import TypedInput, lay_out
    from trainer.planning.tables import FeatureLoad
    from trainer.tables.planned_tables import tables_to_plan
    from transforms.types import Dense
    from warehouse.models.models import get_model, stored_inputs

    with open_warehouse(home) as warehouse, warehouse.catalog.read() as connection:
        record = get_model(connection, name, version or None)
        stored = stored_inputs(connection, record.id)
        in_catalog = _statistics_in_catalog(connection, [one.fingerprint for one in stored])
    features = lay_out(tuple(TypedInput(one.name, one.component.type) for one in stored), options).features
    if not features:
        raise InputError("this model has no embedding inputs: nothing to plan", where=f"model {name}",
                         next_step="plans place embedding tables")  # fmt: skip
    of_runs = _statistics_of_runs(home, name, record.version, runs)
    known = {**in_catalog, **of_runs} if runs else {**of_runs, **in_catalog}
    component = {one.name: one.fingerprint for one in stored}
    loads, sources, statistics = {}, {}, {}
    for feature in features:
        found = known.get(component.get(feature.name, ""))
        if found is not None and found[1].frequencies.rows == feature.table.vocabulary_size:
            source, of_feature = found
            statistics[feature.name] = of_feature
            loads[feature.name] = FeatureLoad.sampled(feature.name, of_feature)
            sources[feature.table.name] = f"{_sampled_text(of_feature)} {source}"
    single = {one.name for one in stored if isinstance(one.component.type, Dense)}
    similar = [load for name, load in loads.items() if name not in single] or list(loads.values())
    for feature in features:
        if feature.name not in loads:
            assumed = FeatureLoad.assumed(
                feature.name, feature.table.vocabulary_size, similar, has_one_id=feature.name in single
            )
            loads[feature.name] = assumed
            sources.setdefault(feature.table.name, _assumption(assumed, similar))
    return TablesToPlan(tables_to_plan(features, loads), sources, features, statistics)


def _limits(planned: Planned, tables: TablesToPlan) -> tuple[StackLimits, ...]:
    """The limits of SparseCore's buffers, where the topology has them; without statistics it is said why there are none."""
    from trainer.planning.plan_report import StackLimits
    from trainer.tables.routes.partitioned.statistics_limits import limits_by_stack, without_statistics
    from trainer.tpu_check.devices import SPARSE_CORE_GENERATIONS

    topology = planned.topology
    if topology.name.partition(":")[0] not in SPARSE_CORE_GENERATIONS:
        return ()
    if not tables.features:
        say("the plan has no limits of SparseCore's buffers: a file of tables does not state how long bags are")
        return ()
    if missing := without_statistics(tables.features, tables.statistics):
        say(f"the plan has no limits of SparseCore's buffers: there are no statistics of {', '.join(missing)}")
        return ()
    found = limits_by_stack(tables.features, tables.statistics, batch_events=planned.batch_events, partitions=topology.cores,
                            stacks=planned.plan.stacks)  # fmt: skip
    return tuple(StackLimits(names, one.ids, one.rows) for names, one in found.items())


def _sampled_text(statistics: FeatureStatistics) -> str:
    """From how many events statistics come."""
    events, batches = many(round(statistics.events), "event"), many(round(statistics.batches), "batch", "batches")
    return f"a sample of {events} in {batches}"


def _assumption(load: FeatureLoad, similar: Sequence[FeatureLoad]) -> str:
    if not similar:
        return "none: one id an event is assumed, of all rows alike"
    return f"none: {load.ids_per_event:.3g} ids an event are assumed, by the other features, of all rows alike"


def _statistics_in_catalog(
    connection: Connection, fingerprints: Sequence[str]
) -> Mapping[str, tuple[str, FeatureStatistics]]:
    """The statistics of components that all models share, each with its place."""
    from warehouse.models.feature_statistics import newest_statistics

    found = newest_statistics(connection, fingerprints)
    return {
        key: (f"from the catalog, by {many(one.version, 'commit')} of training", read_document(one.document, key))
        for key, one in found.items()
    }


def _statistics_of_runs(
    home: str, name: str, version: int, runs: Sequence[str] | None
) -> Mapping[str, tuple[str, FeatureStatistics]]:
    """The statistics in these runs by the fingerprint of a component, each with its run; the first run that has them counts."""
    from trainer.run.progress.run_statistics import read_statistics

    folders = [run_folder(run, 0, home) for run in runs or ()]
    if not folders and "://" not in home_location(home):
        folders = [run_folder_of("", name, version, home)]
    found: dict[str, tuple[str, FeatureStatistics]] = {}
    for folder in folders:
        of_run = read_statistics(folder)
        if of_run is None and runs:
            raise NotFound("a run must have statistics of features", where=folder,
                           next_step="training in one process writes them there, unless statistics_share is 0")  # fmt: skip
        for fingerprint, one in (of_run.features if of_run is not None else {}).items():
            found.setdefault(fingerprint, (f"of run {Path(folder).name}", one.statistics))
    return found
