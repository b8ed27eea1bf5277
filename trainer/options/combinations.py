"""What goes with what in training: where tables are placed, which of their rows have memory, and what may change while a run trains.

One table states each combination that is refused, with its reason. Commands ask it before anything is read, runs and servers before
anything is trained, and ``docs/combinations.md`` prints it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainer.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Setup:
    """Where the tables of a run are placed, and which of their rows have memory.

    Attributes:
        hashed: whether tables have rows by id, in a bounded number of places.
        pruned: whether only the most important rows have memory.
        hosts: the most hosts of the job at any time; 1 for training in one process.
        servers: whether tables are on parameter servers.
        workers: whether embedding workers are between hosts and servers.
        plan: whether a partition plan places the tables.
        plan_follows_data: whether the job changes that plan itself.
        slices: whether the plan cuts tables by columns, or copies them.
        towers: whether hosts exchange by towers.
        tpu: whether a slice trains: the whole model, or with ``servers`` its dense part.
        least_servers: whether training may go on while some servers are away.
        least_hosts: whether a job may go on while some hosts are away.
        spares: whether the job has parameter servers without tables, for those with a preemption notice.
        scales: whether the job changes the number of parameter servers with tables.
        moves: whether tables are moved to other servers while the run trains.
        hot: whether the hot rows of tables on servers are in the memory of the process that trains.
        rounded: whether rows and gradients are rounded on their way between hosts, or to and from servers.
        machines: whether several hosts share a machine.
        tower_sums: whether hosts of a tower may send sums of their rows.
        rounded_sums: whether dense gradients are rounded on their way between hosts.
        batch_files: whether batches are kept in files.
        own_batches: whether each host of a job cuts batches of its own.
        sequences: whether the order of the ids of an input is used.
        tower_modules: whether groups of inputs are compressed together.
    """

    hashed: bool = False
    pruned: bool = False
    hosts: int = 1
    servers: bool = False
    workers: bool = False
    plan: bool = False
    plan_follows_data: bool = False
    slices: bool = False
    towers: bool = False
    tpu: bool = False
    least_servers: bool = False
    least_hosts: bool = False
    spares: bool = False
    scales: bool = False
    moves: bool = False
    hot: bool = False
    rounded: bool = False
    machines: bool = False
    tower_sums: bool = False
    rounded_sums: bool = False
    batch_files: bool = False
    own_batches: bool = False
    sequences: bool = False
    tower_modules: bool = False


#: A training whose tables a user moves to other servers.
MOVING = Setup(servers=True, moves=True)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A combination that no run may have.

    Attributes:
        options: the names of the command's options of which one must be left out; the first one is named as the place of the error.
        holds: whether a setup has the combination.
        what: the rule, as errors say it.
        reason: why it cannot be, for the page.
        next_step: what a user does about it.
    """

    options: tuple[str, ...]
    holds: Callable[[Setup], bool]
    what: str
    reason: str
    next_step: str


def _on_all(owners: str, kind: str, holds: Callable[[Setup], bool], how: str = "") -> Refusal:
    """Tables with rows in a bounded number of places, which ``owners`` give to rows, need all of them; ``how``: they do it, as the reason says it."""
    tables = "hashed" if kind == "hashed" else "pruned"
    how = how or f"each of the {owners} gives its places to its own rows"
    return Refusal((f"least_{owners}", kind), holds, f"{tables} tables must be on all {owners}",
                   f"{how}, so which rows have memory depends on their number: a notice would change what is trained",
                   f"leave --least-{owners} out: training waits until all {owners} are back")  # fmt: skip


_MOVE = "move"
_FIXED = "give a number of servers, such as --servers 4"
_END_FIRST = "end training, and start it again with other --servers: it goes on from its newest checkpoint"

#: In the order in which they are looked at.
REFUSALS = (
    Refusal(("plan", "hashed"), lambda one: one.hashed and one.plan,
            "hashed tables must be placed without a plan",
            "a plan places numbered rows, and any 64-bit number may be an id: ids are spread over all servers or hosts by their remainders",
            "leave --plan out: ids are spread over all servers or hosts"),
    _on_all("servers", "hashed", lambda one: one.hashed and one.least_servers),
    _on_all("servers", "pruning", lambda one: one.pruned and one.least_servers),
    _on_all("hosts", "hashed", lambda one: one.hashed and one.least_hosts and not one.servers),
    _on_all("hosts", "pruning", lambda one: one.pruned and one.least_hosts and not one.servers,
            "new rows get the last free places host by host"),
    Refusal(("tpu", "hashed"), lambda one: one.hashed and one.tpu and not one.servers,
            "hashed tables must be outside of TPUs",
            "the tables of a slice have a fixed number of rows; those of servers beside a slice need not",
            "give --servers N too, leave --tpu out, or hashed out of --config"),
    Refusal(("plan", "pruning"), lambda one: one.pruned and one.slices,
            "pruned tables must be placed by rows, blocks of rows or as wholes",
            "the slices and copies of a row would have to agree on its importance",
            "take a plan without slices of columns and copies, leave --plan out, or pruning out of --config"),
    Refusal(("tpu", "pruning"), lambda one: one.pruned and one.tpu and not one.servers,
            "pruned tables must be outside of TPUs",
            "the tables of a slice are static; those of servers beside a slice need not be",
            "give --servers N too, leave --tpu out, or pruning out of --config"),
    Refusal(("least_servers", "plan"), lambda one: one.least_servers and one.plan,
            "tables with --plan must be on all servers",
            "a plan is for a number of servers",
            "leave --least-servers out: training waits until a server is back; or leave --plan out"),
    Refusal(("plan", "servers"), lambda one: one.servers and one.plan_follows_data,
            "a plan that follows the data must be that of hosts",
            "rows that are spread over servers, as without a plan, make no server busier than others whatever the data does: there is nothing to follow",
            "leave --plan out, or give a plan of headrace plan make, by which headrace ps move --plan moves tables while training goes on"),
    Refusal(("plan", "least_hosts"), lambda one: one.least_hosts and one.plan_follows_data,
            "a plan that follows the data must have all hosts",
            "a plan has a core for each host",
            "leave --least-hosts out: training waits until all hosts are back; or leave --plan out"),
    Refusal(("towers", "tpu"), lambda one: one.towers and one.tpu,
            "a job by towers must be trained without TPUs",
            "a slice places its tables itself",
            "leave --towers or --tpu out"),
    Refusal(("towers", "plan"), lambda one: one.towers and one.plan,
            "a job by towers must be trained without a plan",
            "towers place the tables: hosts have those of their towers",
            "leave --towers or --plan out"),
    Refusal(("towers", "servers"), lambda one: one.servers and one.towers,
            "tables on servers must be trained without towers",
            "towers say which host owns a table, and servers own all of them",
            "leave --towers or --servers out"),
    Refusal(("tower_sums",), lambda one: one.tower_sums and not one.towers,
            "sums of rows must be those of towers",
            "without towers the owner of a row sends it to the host that asks, which adds up its bags: there is no host between that could add",
            "leave --tower-sums out, or give --towers"),
    Refusal(("hosts_per_machine",), lambda one: one.machines and one.hosts < 2,
            "hosts that share a machine must be two or more",
            "one process has no other host to be near to: nothing crosses any link",
            "leave --hosts-per-machine out, or give --hosts"),
    Refusal(("hosts_per_machine", "least_hosts"), lambda one: one.machines and one.least_hosts,
            "hosts that share machines must all be there",
            "hosts share a machine by their ranks, and the hosts that are left get other ranks: neighbours by rank would be on different machines",
            "leave --least-hosts out: training waits until all hosts are back; or leave --hosts-per-machine out"),
    Refusal(("dense_values",), lambda one: one.rounded_sums and one.hosts < 2,
            "rounded dense gradients must be those of several hosts",
            "one process sends its gradients nowhere",
            "leave --dense-values out, or give --hosts"),
    Refusal(("batch_files", "batch_rows_per_host"), lambda one: one.batch_files and one.own_batches,
            "files of batches must be those of batches that all hosts share",
            "a commit has the places that a host with batches of its own still trains, and no number of a batch from which a file could go on",
            "leave --batch-files out, or batch_rows_per_host out of --config"),
    Refusal(("sequences", "tower_modules"), lambda one: one.sequences and one.tower_modules,
            "sequences must be those of a model without tower modules",
            "the host of a tower compresses the rows of its inputs as they are, and lengths of sequences are with the events, on other hosts: it would mix the rows of "
            "an event with the places after its last one",
            "leave sequences or tower_modules out of --config; a job by --towers may have sequences"),
    Refusal(("wire_values",), lambda one: one.rounded and not one.servers and one.hosts < 2,
            "rounded rows must be those of several hosts or of servers",
            "one process sends its rows nowhere",
            "leave --wire-values out, or give --hosts or --servers"),
    Refusal(("wire_values", "tpu"), lambda one: one.rounded and one.tpu and not one.servers,
            "rows of TPUs must be sent as they are",
            "the slice sends them, inside its program",
            "leave --wire-values or --tpu out"),
    Refusal(("hot_rows",), lambda one: one.hot and not one.servers,
            "hot rows must be those of tables on parameter servers",
            "without servers all rows are in the memory of the processes that train: none of them crosses a network to be spared",
            "leave hot_rows out of --config, or give --servers N, or the addresses of servers"),
    Refusal(("hosts", "hot_rows"), lambda one: one.hot and one.hosts > 1,
            "hot rows must be trained by one process or host",
            "a hot row is changed where it is, so each host must have what the others have added: of the bytes of hot rows to and from servers, copies on "
            "all hosts would spare half with 2 hosts and none from 3 on, and rows that hosts own one part in as many as there are hosts",
            "give --hosts 1 or none, or leave hot_rows out of --config"),
    Refusal(("hashed", "hot_rows"), lambda one: one.hot and one.hashed,
            "a run must have hashed tables or hot rows",
            "a server evicts the ids that are not updated: it would evict those that are updated here alone, which are the most frequent ones",
            "leave hashed or hot_rows out of --config"),
    Refusal(("pruning", "hot_rows"), lambda one: one.hot and one.pruned,
            "a run must have pruned tables or hot rows",
            "servers have the places of pruned rows, and a round gives a place to another row: a hot place would be that of a row which has lost it",
            "leave pruning or hot_rows out of --config"),
    Refusal(("embedding_workers", "hot_rows"), lambda one: one.hot and one.workers,
            "hot rows must be trained without embedding workers",
            "a worker adds up the rows of a bag before they are sent, and would have to add rows that it does not have",
            "leave --embedding-workers out, or hot_rows out of --config"),
    Refusal(("wire_values", "hot_rows"), lambda one: one.hot and one.rounded,
            "rows beside hot ones must be sent as they are",
            "rows that are sent would be rounded and hot ones would not: which rows are hot would be in the weights, and a run that goes on "
            "begins without any",
            "leave --wire-values out, or hot_rows out of --config"),
    Refusal((_MOVE, "hot_rows"), lambda one: one.hot and one.moves,
            "tables of a training with hot rows must stay on their servers while it runs",
            "a move copies what servers have, where hot rows are as they were when they became hot",
            _END_FIRST),
    Refusal((_MOVE, "spare_servers"), lambda one: one.spares and one.moves,
            "the tables of a job with spare servers must stay on its servers while it runs",
            "a spare stands by for the servers that the job began with: others would have none",
            _END_FIRST),
    Refusal(("scale_servers_from", "hashed"), lambda one: one.scales and one.hashed,
            "hashed tables must be on a fixed number of servers",
            "each of the servers gives its places to its own rows, so which rows have memory depends on their number: a change would change what is trained",
            _FIXED),
    Refusal(("scale_servers_from", "pruning"), lambda one: one.scales and one.pruned,
            "pruned tables must be on a fixed number of servers",
            "each of the servers gives its places to its own rows, so which rows have memory depends on their number: a change would change what is trained",
            _FIXED),
    Refusal(("scale_servers_from", "plan"), lambda one: one.scales and one.plan,
            "servers whose number changes must have tables without a plan",
            "a plan is for a number of servers",
            "leave --plan out, or " + _FIXED),
    Refusal((_MOVE, "scale_servers_from"), lambda one: one.scales and one.moves,
            "the tables of a job that scales its servers must stay on them while it runs",
            "the job chooses among the servers that it began with: it has no others",
            "headrace ps scale RUN --servers N; or " + _END_FIRST),
)  # fmt: skip


def refusal_of(setup: Setup) -> Refusal | None:
    """The first combination of a setup that is refused; None for one that may train."""
    return next((one for one in REFUSALS if one.holds(setup)), None)


def check_setup(setup: Setup) -> None:
    """Raise :class:`~trainer.errors.ConfigError` for a setup that is refused."""
    if (found := refusal_of(setup)) is not None:
        raise ConfigError(found.what, where=place_of(found), value=found.reason, next_step=found.next_step)


def place_of(refusal: Refusal) -> str:
    """The options of a combination, as a user writes them."""
    return ", ".join(_written(one) for one in refusal.options)


def _written(option: str) -> str:
    if option in ("hashed", "pruning", "hot_rows", "batch_rows_per_host", "sequences", "tower_modules"):
        return f"{option} of --config"
    return "headrace ps move" if option == _MOVE else f"--{option.replace('_', '-')}"
