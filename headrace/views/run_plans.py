"""The plan that the tables of a run follow, priced by what its features were seen to look up, and its towers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transforms.errors import HeadraceError, NotFound

if TYPE_CHECKING:
    from headrace.screens.plan_history import PlanHistoryScreen
    from headrace.screens.plans import ExplainScreen
    from headrace.screens.run_plans import HeldBy, PlacedBy, RunPlanScreen, RunTowersScreen
    from trainer.checkpoints.stored_commit import StoredCommit
    from trainer.options.config import TrainConfig
    from trainer.planning.feature_statistics import FeatureStatistics
    from trainer.planning.plan import PartitionPlan
    from trainer.planning.plan_report import PlanReport
    from trainer.planning.tables import TableFacts
    from trainer.planning.topologies import PlanTopology
    from trainer.run.progress.identity import RunIdentity
    from trainer.tables.spec import FeatureSpec

#: The kind of the topology of what has the tables; see :func:`~trainer.planning.topologies.topology_of`.
_KINDS: Mapping[HeldBy, str] = {"hosts": "cpu", "cores": "cpu", "parameter servers": "ps"}
_MOST_EXPLAINED = 40


@dataclass(frozen=True)
class _RunTables:
    """The embedding tables of a run.

    Attributes:
        config: its options.
        features: those that are embedded.
        sampled: the statistics of features by name, those that there are.
        source: where they come from.
    """

    config: TrainConfig
    features: tuple[FeatureSpec, ...]
    sampled: Mapping[str, FeatureStatistics]
    source: str

    def facts(self, topology: PlanTopology) -> tuple[TableFacts, ...]:
        """The tables as features have used them."""
        from trainer.job.feedback.epoch_prices import EpochPricing

        return EpochPricing(self.features, topology, self.config.rows_of_step(topology.cores)).facts(self.sampled)

    def sources(self, facts: tuple[TableFacts, ...]) -> dict[str, str]:
        """Where the statistics of each table come from."""
        return {
            one.name: "none: one id an event is assumed, of all rows alike" if one.is_assumed else self.source
            for one in facts
        }


def plan_of_run(folder: str) -> RunPlanScreen:
    """The placement of a run's tables in its newest commit, with its estimates.

    Raises :class:`NotFound` for a folder without checkpoints, and :class:`~trainer.errors.TornCheckpoint` for a damaged one.
    """
    from headrace.screens.plan_drawing import plan_svg
    from headrace.screens.plans import plan_screen
    from headrace.screens.run_plans import RunPlanScreen
    from headrace.views.checkpoints import opened_run
    from headrace.views.jobs import speeds
    from trainer.checkpoints.read import open_commit
    from trainer.checkpoints.run_files import newest_first
    from trainer.planning.plan_document import plan_fingerprint

    files = opened_run(folder)
    commit = open_commit(files, newest_first(files)[0])
    tables = _tables_of(folder, commit)
    held_by = _held_by(commit)
    plan, placed_by = _placement(folder, commit, held_by, tables)
    report: PlanReport | None = None
    problem = (
        "one process has all tables" if held_by == "process" else "" if plan else "the run has no embedding tables"
    )
    if plan is not None:
        try:
            report = _report(plan, tables, _KINDS[held_by])
        except HeadraceError as error:
            problem = f"no estimates: {error.what}"
    try:
        newest = next(iter(speeds(folder, 1)), None)
    except HeadraceError:
        newest = None  # a damaged history, which the page of the run names
    return RunPlanScreen(
        run=folder,
        commit=commit.epochs_done,
        held_by=held_by,
        placed_by=placed_by,
        plan=None if plan is None else plan_screen("", plan_fingerprint(plan), plan, report),
        drawing="" if plan is None or report is None else plan_svg(plan, report),
        tables=_explained(plan, report) if placed_by == "plan" else (),
        problem=problem,
        history=_history(folder),
        newest=newest,
    )


def towers_of_run(folder: str) -> RunTowersScreen:
    """The towers of the job of a local run. Raises :class:`NotFound` for a run without towers, and as :meth:`JobSpec.read`."""
    from headrace.screens.run_plans import RunTowerRow, RunTowersScreen
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.job_spec import JobSpec
    from trainer.tables.routes.towers.placement import TowerPlacement

    spec = JobSpec.read(JobFiles(Path(folder)))
    if not spec.towers:
        raise NotFound("a run must be trained by towers to have some", where=folder,
                       next_step="headrace train MODEL --hosts N --towers FILE: docs/towers.md")  # fmt: skip
    sizes, loads, has_modules = _sizes(folder, spec.settings.most_hosts)
    placement = TowerPlacement(spec.settings.most_hosts, 1, spec.towers)
    rows = tuple(
        RunTowerRow(number, hosts, features, _sum(sizes, features), _sum(loads, features))
        for number, (hosts, features) in enumerate(zip(placement.tower_hosts, spec.towers, strict=True))
    )
    return RunTowersScreen(folder, spec.machine_hosts, spec.sends_sums, has_modules, rows)


def has_towers(folder: str) -> bool:
    """Whether the job of a local run is one by towers; false for one that cannot be read."""
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.job_spec import JobSpec

    try:
        return bool(JobSpec.read(JobFiles(Path(folder))).towers)
    except HeadraceError:
        return False


def _tables_of(folder: str, commit: StoredCommit) -> _RunTables:
    from trainer.model.inputs import lay_out
    from trainer.options.config import TrainConfig
    from trainer.run.progress.identity import RunIdentity

    identity = RunIdentity.read(commit.document.at("identity"))
    config = TrainConfig.from_document(identity.config, run_dir="run")
    features = tuple(lay_out(identity.typed_inputs, config).features) if config.deep else ()
    return _RunTables(config, features, *_sampled(folder, commit.epochs_done, identity))


def _sampled(folder: str, commit: int, identity: RunIdentity) -> tuple[dict[str, FeatureStatistics], str]:
    """The statistics of features by name, those of hosts that wrote a commit, or of the run; and where they come from."""
    from trainer.errors import TornCheckpoint
    from trainer.run.progress.part_statistics import read_commit_statistics
    from trainer.run.progress.run_statistics import read_statistics

    try:
        of_commit = read_commit_statistics(folder, commit)
        found = of_commit or read_statistics(folder)
    except TornCheckpoint:
        of_commit = found = None  # estimates then assume what they do not know
    known = {} if found is None else {key: one.statistics for key, one in found.features.items()}
    by_name = {one["name"]: known[one["fingerprint"]] for one in identity.inputs if one["fingerprint"] in known}
    return by_name, f"a sample of commit {commit}" if of_commit else "a sample of this run"


def _held_by(commit: StoredCommit) -> HeldBy:
    if commit.shards:
        return "parameter servers"
    if commit.job is not None:
        return "hosts"
    return "cores" if commit.partition is not None else "process"


def _placement(
    folder: str, commit: StoredCommit, held_by: HeldBy, tables: _RunTables
) -> tuple[PartitionPlan | None, PlacedBy]:
    """The placement of the tables, and what placed them; None without one."""
    from trainer.planning.plan import cyclic_plan
    from trainer.tables.spec import tables_of

    if held_by == "process" or not tables.features:
        return None, "none"
    planned = commit.partition or (_plan_of_servers(folder) if held_by == "parameter servers" else None)
    cores = len(commit.shards) if held_by == "parameter servers" else len(commit.parts)
    if planned is not None and planned.tables and (planned.cores == cores or held_by != "parameter servers"):
        return planned, "towers" if has_towers(folder) else "plan"
    return cyclic_plan([(one.name, one.vocabulary_size, one.dim) for one in tables_of(tables.features)], cores), "none"


def _plan_of_servers(folder: str) -> PartitionPlan | None:
    """The plan by which the servers of a job hold tables; None without one, and where it cannot be read."""
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.job_spec import JobSpec
    from trainer.planning.plan_document import find_partition

    files = JobFiles(Path(folder))
    try:
        servers = JobSpec.read(files).servers
        return None if servers is None else find_partition(servers.plan, files.read_document)
    except HeadraceError:
        return None


def _report(plan: PartitionPlan, tables: _RunTables, kind: str) -> PlanReport:
    """The estimates of a plan. Raises :class:`~trainer.errors.ConfigError` for tables that no plan has, or of which it has others."""
    from trainer.errors import ConfigError
    from trainer.planning.loads import loads_of
    from trainer.planning.plan_report import report_of
    from trainer.planning.planner import Planned
    from trainer.planning.topologies import topology_of
    from trainer.planning.ways import bound_of, ways_of
    from trainer.planning.work import TableWork

    if tables.config.hashed:
        raise ConfigError("hashed tables have no fixed number of rows", where="hashed", value=", ".join(tables.config.hashed))  # fmt: skip
    topology = topology_of(f"{kind}:{plan.cores}")
    events = tables.config.rows_of_step(plan.cores)
    by_name = {one.name: one for one in tables.facts(topology)}
    facts = tuple(by_name[one.name] for one in plan.tables if one.name in by_name)
    loads = loads_of(plan, facts, topology, events)  # raises for other tables
    ways = [ways_of(TableWork(one, topology, events)) for one in facts]
    bound = bound_of(ways, topology).step_secs if all(ways) else 0.0
    planned = Planned(plan, topology, events, loads, bound, "the placement of the newest commit")
    return report_of(planned, facts, tables.sources(facts))


def _explained(plan: PartitionPlan | None, report: PlanReport | None) -> tuple[ExplainScreen, ...]:
    from headrace.screens.plans import explain_screen

    if plan is None or report is None:
        return ()
    return tuple(explain_screen(plan, one, report) for one in plan.tables[:_MOST_EXPLAINED])


def _history(folder: str) -> PlanHistoryScreen | None:
    from headrace.screens.plan_history import PlanHistoryScreen
    from trainer.errors import TornCheckpoint
    from trainer.job.feedback.plan_log import PlanLog

    try:
        log = PlanLog.read(folder)
    except TornCheckpoint:
        return None
    return PlanHistoryScreen.of(folder, log) if log.changes else None


def _sizes(folder: str, hosts: int) -> tuple[dict[str, float], dict[str, float], bool]:
    """Of each feature the bytes of its table, those that an event looks up, and whether the model has tower modules; empty before the first commit."""
    from headrace.views.checkpoints import opened_run
    from trainer.checkpoints.read import open_commit
    from trainer.checkpoints.run_files import newest_first
    from trainer.planning.topologies import topology_of

    try:
        files = opened_run(folder)
        tables = _tables_of(folder, open_commit(files, newest_first(files)[0]))
        facts = tables.facts(topology_of(f"cpu:{hosts}"))
    except HeadraceError:
        return {}, {}, False
    sizes = {load.name: float(one.table_bytes) for one in facts for load in one.features[:1]}
    rest = {load.name: 0.0 for one in facts for load in one.features[1:]}  # a shared table counts once
    loads = {load.name: load.ids_per_event * one.row_bytes for one in facts for load in one.features}
    return {**sizes, **rest}, loads, tables.config.tower_modules is not None


def _sum(values: Mapping[str, float], features: tuple[str, ...]) -> int | None:
    return round(sum(values[one] for one in features)) if all(one in values for one in features) else None
