"""Checks the placement of a run's tables: the plan, the plan of the stored parts, and pruned tables on hosts. Pure."""

from __future__ import annotations

from trainer.errors import ConfigError, RunMismatch
from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.model.unbounded_tables import hashed_tables
from trainer.options.config import TrainConfig
from trainer.planning.plan import PartitionPlan, TablePlan, cyclic_plan
from trainer.run.weights.one_engine import joined_features, joined_options
from trainer.run.weights.run_state import linear_features
from trainer.run.weights.saved_run import SavedRun
from trainer.tables.routes.partitioned.pruned_groups import groups_on, shared_groups_on, shares_places
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers.pruned_servers import server_groups
from trainer.tables.spec import tables_of
from trainer.tables.stores.pruned.rows import groups_of

_WHERE = "--plan"


def check_tables(plan: PartitionPlan, layout: InputLayout, config: TrainConfig, *, option: str = _WHERE) -> None:
    """Raise :class:`ConfigError` unless the tables of a plan are those of the model's deep part, which their optimizers let it cut.

    ``option``: by which the plan was given.
    """
    if not (config.deep and layout.features):
        raise ConfigError(f"{option} needs a model with embedding tables", where=option,
                          value="deep is false" if layout.features else "no input of ids",
                          next_step=f'train without {option}, or give {{"deep": true}} with --config')  # fmt: skip
    tables = tables_of(layout.features)
    own, planned = {one.name for one in tables}, {one.name for one in plan.tables}
    missing, unknown = sorted(own - planned), sorted(planned - own)
    if missing or unknown:
        raise ConfigError("a plan must have the embedding tables of the model", where=f"{_WHERE}, table {(missing or unknown)[0]}",
                          value=f"without {', '.join(missing)}"[:200] if missing else f"also {', '.join(unknown)}"[:200],
                          allowed=", ".join(sorted(own))[:200],
                          next_step="headrace plan make MODEL, with the --config of training, writes a plan")  # fmt: skip
    TableParts(tables, plan.cores, plan)


def check_hosts(plan: PartitionPlan, hosts: int, least_hosts: int = 0, caught_up_hosts: int = 0) -> None:
    """Raise :class:`ConfigError` unless a plan has a core for each host, as long as the job runs.

    ``least_hosts``, ``caught_up_hosts``: the other numbers of hosts of the job; 0: not given.
    """
    numbers = {"--hosts": hosts, "--least-hosts": least_hosts, "--caught-up-hosts": caught_up_hosts}
    for option, number in numbers.items():
        if number and number != plan.cores:
            step = f"headrace plan make MODEL --topology cpu:{number} --output FILE"
            raise ConfigError("a plan must have a core for each host of the job", where=f"{_WHERE}, {option}",
                              value=f"{plan.cores} cores", allowed=f"{number}, the value of {option}",
                              next_step=f"{step}, or --hosts {plan.cores}" if option == "--hosts" else f"leave {option} out")  # fmt: skip


def check_fixed_hosts(hosts: int, least_hosts: int, caught_up_hosts: int, *, where: str) -> None:
    """Raise :class:`ConfigError` unless the number of hosts of a job is fixed; 0: the option is not given."""
    for option, number in (("--least-hosts", least_hosts), ("--caught-up-hosts", caught_up_hosts)):
        if number and number != hosts:
            raise ConfigError("this job needs a fixed number of hosts: each holds a part of the tables", where=f"{where}, {option}", value=number,
                              allowed=str(hosts), next_step=f"leave {option} out")  # fmt: skip


def check_pruned_hosts(
    layout: InputLayout, config: TrainConfig, head: AnyHead, hosts: int, plan: PartitionPlan | None = None
) -> None:
    """Raise :class:`ConfigError` for pruned tables that hosts cannot have: slices and copies, and where places are divided a host with rows and no place.

    ``plan``: of the deep part; None: rows are spread over the hosts, as those of the linear part.
    """
    if config.pruning is None or not layout.features:
        return
    linear, hashed = linear_features(layout, config, head), hashed_tables(layout.features, config)
    for is_used, features, by in ((config.deep, layout.features, plan), (config.linear, linear, None)):
        if is_used:
            tables = tables_of(features)
            of_host = shared_groups_on if shares_places(config.pruning, hosts) else groups_on
            of_host(TableParts(tables, hosts, by), groups_of(tables, config.pruning, hashed), 0)


def check_pruned_servers(
    layout: InputLayout, config: TrainConfig, head: AnyHead, servers: int, plan: PartitionPlan | None = None
) -> None:
    """As :func:`check_pruned_hosts`, for servers, and a plan of their tables."""
    if config.pruning is not None and layout.features:
        options, tables = joined_options(layout, config, head), tables_of(joined_features(layout, config, head))
        assert options.pruning is not None
        server_groups(tables, servers, plan, options.pruning, options.hashed)


def check_stored(plan: PartitionPlan, saved: SavedRun | None) -> None:
    """Raise :class:`RunMismatch` for a plan other than that of the parts of the run's newest commit.

    The checkpoint of one process has whole tables, which any plan may take.
    """
    if saved is None or (saved.partition is None and saved.job is None):
        return
    if _tables(_stored_plan(saved, plan)) == _tables(plan):
        return
    raise RunMismatch("a run must continue with the plan of its newest commit, got another plan", where=saved.path, value=_words(plan),
                      allowed=_words(saved.partition) if saved.partition else "rows that are spread over its hosts",
                      next_step="headrace ckpt reshard RUN --output NEW, with --plan, or with --hosts and --towers, writes a run by it; or leave it out")  # fmt: skip


def _stored_plan(saved: SavedRun, plan: PartitionPlan) -> PartitionPlan:
    """The placement of ``plan``'s tables in a commit of parts; a table that its partition does not name is spread by rows."""
    own = saved.partition
    if own is not None and own.tables:
        return own
    cores = own.cores if own is not None else len(saved.job.hosts) if saved.job is not None else 1
    return cyclic_plan([(one.name, one.rows, one.columns) for one in plan.tables], cores)


def _tables(plan: PartitionPlan) -> tuple[int, dict[str, TablePlan]]:
    return plan.cores, {one.name: one for one in plan.tables}


def _words(plan: PartitionPlan) -> str:
    return f"{len(plan.tables)} tables on {plan.cores} cores"
