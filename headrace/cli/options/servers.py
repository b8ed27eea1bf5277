"""The options of parameter servers and embedding workers: those of this machine, or those at addresses."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from headrace.cli.options.launchers import GKE, REMOTE, TPU_VM, ClusterOptions, option_name
from headrace.cli.options.metrics import MetricsOptions
from headrace.cli.options.option_groups import Mark
from headrace.cli.options.tokens import read_token_file
from headrace.terminal.output import say
from transforms.child_process import module_command
from transforms.errors import InputError
from warehouse.storage.locations import is_gcs

if TYPE_CHECKING:
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.job_spec import ServersSpec
    from trainer.job.launch.local_servers import LocalServers
    from trainer.options.process_range import ProcessRange
    from trainer.planning.plan import PartitionPlan
    from trainer.servers.moves.server_moves import ServerMoves
    from trainer.servers.run_servers import RunServers
    from trainer.servers.server_watch import ServerWatch
    from trainer.tables.wire.settings import WireSettings
    from trainer.wire.flight.addresses import Address

#: More processes on one machine are a mistake.
_MOST_LOCAL = 64
_NO_METRICS = MetricsOptions()
_RANGE = ".."
SUMMED = "summed"
_MOST_THREADS = 256
#: Options that need ``--servers``.
_OF_SERVERS = (
    "server_threads",
    "server_token_file",
    "server_ca",
    "server_updates",
    "wire_ids",
    "embedding_workers",
    "least_servers",
    "spare_servers",
    "scale_servers_from",
)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Parameter servers and embedding workers. Raises :class:`InputError` for options that do not go with servers, or with each other."""

    PANEL: ClassVar[str] = "Parameter servers"

    servers: Annotated[
        str,
        typer.Option(
            metavar="N|N..M|HOST:PORT,...",
            help="Keep embedding tables on parameter servers: N processes of this machine, N to M as it pays (with --hosts), or those at the addresses.",
            show_default=False,
        ),
        Mark.FIRST,
        Mark.COUNT,
    ] = ""
    least_servers: Annotated[
        int,
        typer.Option(
            help="Go on with this number of servers after a preemption notice of others. Default: wait until all are back.",
            show_default=False,
        ),
    ] = 0
    spare_servers: Annotated[
        int,
        typer.Option(
            help="Servers beside those with tables, in the place of those with a preemption notice: more processes, or the last addresses; with --hosts.",
            show_default=False,
        ),
    ] = 0
    scale_servers_from: Annotated[
        int,
        typer.Option(
            help="Begin with so many of the servers, and use more or fewer as it pays; with --hosts. --servers N..M says the same of processes.",
            show_default=False,
        ),
    ] = 0
    server_threads: Annotated[
        int,
        typer.Option(
            help="Threads of each server that is started, which divide large messages. Default: an equal share of this machine's processors; 4 on a cluster.",
            show_default=False,
        ),
    ] = 0
    embedding_workers: Annotated[
        str,
        typer.Option(
            metavar="N|HOST:PORT,...",
            help="Let embedding workers pool rows and sum gradients: N processes of this machine, or those at the addresses.",
            show_default=False,
        ),
        Mark.COUNT,
    ] = ""
    server_token_file: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A file with the token of the servers and workers at addresses.", show_default=False
        ),
        Mark.PATH,
    ] = ""
    server_ca: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="PEM file of the authority of the certificates of servers and workers: TLS.",
            show_default=False,
        ),
        Mark.PATH,
    ] = ""
    server_updates: Annotated[
        str,
        typer.Option(
            help="How updates come together: those of all hosts summed, once a step; or each as it arrives, at most `staleness` steps apart, with lookups that overlap.",
        ),
    ] = SUMMED
    wire_ids: Annotated[
        str,
        typer.Option(
            metavar="plain|unique",
            help="Row numbers to and from servers: as they are, or as differences, lossless.",
            show_default=False,
        ),
    ] = ""
    wire_values: Annotated[
        str,
        typer.Option(
            metavar="float32|fp16|fp14",
            help="Rows and gradients between hosts, or to and from servers: as they are, or rounded to 16 or 14 bits each.",
            show_default=False,
        ),
    ] = ""

    def __post_init__(self) -> None:
        if not self.servers:
            self._refuse_alone()
            self.wire()
            return
        if self.server_updates not in (SUMMED, "each"):
            raise InputError("--server-updates must be summed or each", value=self.server_updates)
        self.wire()
        self._check_workers(is_number=self.is_number)
        self._check_range()
        self._check_spares()
        self._check_least(self.used)
        self._check_threads()

    @property
    def is_number(self) -> bool:
        """Whether the servers are processes of this machine."""
        return _is_number(self.servers) or _RANGE in self.servers

    @property
    def scaled(self) -> ProcessRange | None:
        """The least and the most servers with tables, where a job scales them; None for a fixed number."""
        found = self._range if self.servers else None
        return None if found is None or found.is_fixed else found

    @property
    def _range(self) -> ProcessRange:
        """The least and the most servers with tables, spares among the most."""
        from trainer.options.process_range import ProcessRange

        if _RANGE in self.servers:
            return ProcessRange.parse(self.servers, "--servers")
        given = servers_of(self.servers)
        most = given if isinstance(given, int) else len(given)
        return ProcessRange(self.scale_servers_from or most, most)

    @property
    def _given(self) -> int:
        """The number of servers that are given, the most of a range."""
        return self._range.most

    @property
    def used(self) -> int:
        """The servers with tables when training begins."""
        if (scaled := self.scaled) is not None:
            return scaled.least
        return self._given - (0 if self.is_number else self.spare_servers)

    @property
    def count(self) -> int:
        """The servers, with spares and those that may be used later; 0 without any."""
        if not self.servers:
            return 0
        return self._given + (self.spare_servers if self.is_number else 0)

    @property
    def local_threads(self) -> int:
        """The threads of each server of this machine: those given, or its share of the processors among the servers with tables, at least one."""
        return self.server_threads or share_of_processors(self._given)

    @property
    def worker_count(self) -> int:
        """The embedding workers that are started with the run; 0 without any, and for those at addresses."""
        return int(self.embedding_workers) if self.has_own_workers else 0

    @property
    def has_own_workers(self) -> bool:
        """Whether embedding workers are processes of this machine."""
        return _is_number(self.embedding_workers)

    def wire(self) -> WireSettings:
        """The encodings of messages. Raises :class:`InputError` for unknown ones."""
        from trainer.tables.wire.settings import IDS, VALUES, WireSettings

        for name, known in (("wire_ids", IDS), ("wire_values", VALUES)):
            if (value := getattr(self, name)) and value not in known:
                option = option_name(name)
                raise InputError(f"{option} must be a known encoding", where=option, value=value, allowed=", ".join(known))  # fmt: skip
        return WireSettings(self.wire_ids or IDS[0], self.wire_values or VALUES[0])

    def check_launcher(self, launcher: str) -> None:
        """Raise :class:`InputError` for servers or workers that a launcher does not start, or cannot find."""
        if not self.servers:
            return
        _check_launcher(self, launcher)
        if launcher == GKE and self.embedding_workers and not self.has_own_workers:
            raise InputError("--embedding-workers with --launcher gke needs a number: the cluster starts that many workers",
                             where="--embedding-workers, --launcher", value=self.embedding_workers, allowed=f"1 to {_MOST_LOCAL}")  # fmt: skip
        if launcher == REMOTE and self.has_own_workers:
            raise InputError("--embedding-workers with --launcher remote needs the addresses of running workers",
                             where="--embedding-workers, --launcher", value=self.embedding_workers, allowed="host:port,...",
                             next_step="headrace ps worker --servers ADDRESSES --token-file TOKEN")  # fmt: skip

    def _refuse_alone(self) -> None:
        """Raise :class:`InputError` for an option without servers."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _OF_SERVERS and value != field.default:
                name = option_name(field.name)
                raise InputError(f"{name} must go with --servers", where=name, value=value, next_step="give --servers too")  # fmt: skip

    def _check_spares(self) -> None:
        """Raise :class:`InputError` for a number of spares that leaves no server for tables."""
        if self.spare_servers < 0 or self.used < 1 or self.count > _MOST_LOCAL:
            raise InputError("spare servers must leave a server for tables", where="--spare-servers, --servers", value=self.spare_servers,
                             allowed=f"from 0 on, below the number of addresses, and up to {_MOST_LOCAL} servers in all")  # fmt: skip

    def _check_range(self) -> None:
        """Raise :class:`InputError` for a wrong range of servers, or another rule for which servers have tables."""
        place = "--scale-servers-from, --servers"
        if _RANGE in self.servers and self.scale_servers_from:
            raise InputError("the least number of servers must be given once", where=place, value=self.scale_servers_from,
                             next_step=f"leave --scale-servers-from out, or give --servers {self._given}")  # fmt: skip
        if not 0 <= self.scale_servers_from <= self._given or not 1 <= self._given <= _MOST_LOCAL:
            raise InputError("servers that scale must be a part of the servers", where=place, value=self.scale_servers_from,
                             allowed=f"from 1 to {self._given} of at most {_MOST_LOCAL} servers")  # fmt: skip
        other = "spare_servers" if self.spare_servers else "least_servers" if self.least_servers else ""
        if self.scaled is not None and other:
            raise InputError("servers that scale must have no other rule for the servers with tables", where=f"{option_name(other)}, --servers",
                             value=getattr(self, other), next_step=f"leave {option_name(other)} out: another server takes the place of one that leaves")  # fmt: skip

    def _check_least(self, servers: int) -> None:
        """Raise :class:`InputError` for a least number of servers that they do not have."""
        if not 0 <= self.least_servers <= servers:
            raise InputError(
                "--least-servers must be at most the number of servers",
                where="--least-servers",
                value=self.least_servers,
                allowed=f"up to {servers}",
            )

    def _check_threads(self) -> None:
        """Raise :class:`InputError` for a wrong number of threads, or for servers that are started elsewhere."""
        if not 0 <= self.server_threads <= _MOST_THREADS:
            raise InputError("the threads of a server must be a number of threads", where="--server-threads", value=self.server_threads,
                             allowed=f"1 to {_MOST_THREADS}")  # fmt: skip
        if self.server_threads and not self.is_number:
            raise InputError("--server-threads must go with servers that this command starts", where="--server-threads, --servers",
                             value=self.servers, next_step="headrace ps serve --threads N")  # fmt: skip

    def _check_workers(self, *, is_number: bool) -> None:
        """Raise :class:`InputError` for embedding workers that do not go with the servers."""
        text = self.embedding_workers
        if text and is_number and not isinstance(servers_of(text, "--embedding-workers"), int):
            raise InputError("--embedding-workers at addresses must go with --servers at addresses", where="--embedding-workers, --servers",
                             value=text, next_step="give the addresses of the workers' servers, or a number of workers")  # fmt: skip


def share_of_processors(servers: int) -> int:
    """The processors of this machine for each of so many servers, at least one."""
    from trainer.tables.kernels.threads import available_threads

    return max(1, available_threads() // servers)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def servers_of(text: str, option: str = "--servers") -> tuple[Address, ...] | int:
    """A number of processes, or addresses. Raises :class:`InputError` for others."""
    if not _is_number(text):
        return addresses_of(option, text)
    if not (len(text) < 9 and 1 <= int(text) <= _MOST_LOCAL):
        raise InputError(
            f"{option} must be a number of processes, or addresses", value=text, allowed=f"1 to {_MOST_LOCAL}"
        )
    return int(text)


def _check_launcher(options: ServerOptions, launcher: str) -> None:
    """Raise :class:`InputError` for servers that a launcher does not start, or cannot find."""
    text, is_number = options.servers, options.is_number
    if launcher == TPU_VM:
        raise InputError("--launcher tpu-vm starts no parameter servers: its hosts hold the tables", where="--servers, --launcher",
                         value=text, next_step="leave --servers out, or use --launcher gke")  # fmt: skip
    if launcher == GKE:
        if not is_number:
            raise InputError("--servers with --launcher gke needs a number: the cluster starts that many servers", where="--servers, --launcher",
                             value=text, allowed=f"1 to {_MOST_LOCAL}")  # fmt: skip
        for option in ("server_token_file", "server_ca"):
            if value := getattr(options, option):
                raise InputError("with --launcher gke the servers use the token of the job", where=option_name(option), value=value,
                                 next_step="leave this option out")  # fmt: skip
    if launcher == REMOTE and is_number:
        raise InputError("--servers with --launcher remote needs the addresses of running servers", where="--servers, --launcher",
                         value=text, allowed="host:port,...", next_step="headrace ps serve --token-file TOKEN")  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpenServers:
    """The servers of a run.

    Attributes:
        servers: for training in this process.
        spec: for the hosts of a job.
        folder: of the run.
        files: of the job, with the token of the processes that are started.
        local: those that were started; None: they are at addresses.
        begins_with: so many of them have tables when training begins; None: all.
        threads: of each server of this machine that a user moves tables to; 0: its share of the processors.
        watched: watches them since they have answered; None: nothing does.
        metrics: of servers that are started.
    """

    servers: RunServers
    spec: ServersSpec
    folder: str
    files: JobFiles
    local: LocalServers | None = None
    begins_with: int | None = None
    threads: int = 0
    watched: ServerWatch | None = None
    metrics: MetricsOptions = _NO_METRICS

    @property
    def begun(self) -> RunServers:
        """The servers with tables when training begins."""
        return replace(self.servers, addresses=self.servers.addresses[: self.begins_with])

    def running(self, names: Collection[str]) -> RunServers:
        """The servers of these names; without names all of them."""
        kept = tuple(one for k, one in enumerate(self.servers.addresses) if not names or f"s{k}" in names)
        return replace(self.servers, addresses=kept)

    def watch(self, servers: RunServers) -> ServerWatch:
        """Watch the servers that have the tables now."""
        from trainer.servers.server_watch import watch_servers

        is_same = (
            self.watched is not None and self.watched.addresses == servers.addresses and not self.watched.is_closed
        )
        return self.watched if is_same and self.watched is not None else watch_servers(servers)

    def check(self) -> None:
        """Raise :class:`~transforms.errors.StorageError` for a server of this machine that has ended by an error of its own."""
        if self.local is not None:
            self.local.check()

    def moves(self) -> ServerMoves:
        """The servers of training in this process, which a user may replace by others."""
        from trainer.job.launch.local_servers import LocalServers
        from trainer.servers.moves.move_documents import MoveFiles
        from trainer.servers.moves.server_moves import ServerMoves

        logs = Path(self.folder) / "logs"

        def start(count: int) -> LocalServers:
            self.files.make_token()
            threads = self.threads or share_of_processors(count)
            authority = self.spec.authority  # of the servers that have the rows
            command = partial(server_command, authority=authority, threads=threads)
            own = LocalServers(
                count,
                command,
                token_file=self.files.token,
                logs=logs,
                runs=_own_runs(self.folder),
                metrics=partial(_metrics_of, self.metrics, self.folder, self.files),
            )
            return own.__enter__()

        return ServerMoves(self.servers, MoveFiles.of_run(self.folder), start=start, started=self.local, tell=say)


@contextmanager
def open_servers(
    options: ServerOptions,
    cluster: ClusterOptions,
    folder: str,
    job_folder: str,
    plan: PartitionPlan | None,
    metrics: MetricsOptions = _NO_METRICS,
) -> Iterator[OpenServers | None]:
    """The servers and embedding workers of a run while it trains; None without ``--servers``.

    Those of this machine are started with the token of the job, and end with the context; those at addresses must answer.
    ``metrics``: of the processes that are started.
    """
    text = options.servers
    if not text:
        yield None
        return
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.local_servers import LocalServers
    from trainer.servers.server_watch import watch_servers

    files = JobFiles(Path(job_folder).absolute())
    if plan is not None:
        check_server_plan(plan, options.used)
    logs, of_workers = Path(folder) / "logs", options.embedding_workers
    own: LocalServers | None = None
    if options.is_number or options.has_own_workers:
        files.make_token()
    token_file = str(files.token) if options.is_number else _absolute(options.server_token_file)
    with ExitStack() as started:
        if options.is_number:
            own = started.enter_context(
                LocalServers(
                    options.count,
                    partial(server_command, threads=options.local_threads),
                    token_file=files.token,
                    logs=logs,
                    runs=_own_runs(folder),
                    started=None if options.scaled is None else options.used,
                    metrics=partial(_metrics_of, metrics, folder, files),
                )
            )
            addresses = own.addresses
        else:
            addresses = addresses_of("--servers", text)
        workers: tuple[Address, ...] = ()
        workers_token_file = token_file
        if options.has_own_workers:
            workers_token_file = str(files.token)
            command = partial(worker_command, addresses, _absolute(options.server_ca), token_file)
            local = LocalServers(
                int(of_workers),
                command,
                token_file=files.token,
                logs=logs,
                kind="w",
                has_rows=False,
                metrics=partial(_metrics_of, metrics, folder, files),
            )
            workers = started.enter_context(local).addresses
        elif of_workers:
            workers = addresses_of("--embedding-workers", of_workers)
        found = servers_at(addresses, options, cluster, plan, folder, files, token_file, workers, workers_token_file)
        yield replace(found, local=own, metrics=metrics, watched=started.enter_context(watch_servers(found.servers)))


def _metrics_of(metrics: MetricsOptions, folder: str, files: JobFiles, name: str) -> list[str]:
    """The options for the metrics of a server of this machine, of the run in ``folder``."""
    return metrics.of_child(name, folder, files.metrics)


def check_server_plan(plan: PartitionPlan, servers: int) -> None:
    """Raise :class:`InputError` for a plan without a core for each server."""
    if plan.cores != servers:
        raise InputError("a plan must have a core for each server", where="--plan, --servers", value=f"{plan.cores} cores", allowed=str(servers),
                         next_step=f"headrace plan make MODEL --topology ps:{servers} --output FILE")  # fmt: skip


def _own_runs(folder: str) -> str:
    """The run directory for the servers that are started with it; a process of another working directory finds it, too."""
    return folder if is_gcs(folder) else _absolute(folder)


def _absolute(path: str) -> str:
    """The path of an option's file, such as that of the token of servers at addresses; empty for none."""
    return str(Path(path).absolute()) if path else ""


def servers_at(
    addresses: tuple[Address, ...],
    options: ServerOptions,
    cluster: ClusterOptions,
    plan: PartitionPlan | None,
    folder: str,
    files: JobFiles,
    token_file: str,
    workers: tuple[Address, ...] = (),
    workers_token_file: str = "",
) -> OpenServers:
    """The servers at addresses for a run that begins now. They must answer, unless its hosts are on other machines.

    Args:
        addresses: of the servers.
        options: how they are reached, and updated.
        cluster: where the hosts are.
        plan: by which they hold tables; None: rows are spread over them.
        folder: of the run.
        files: of its job.
        token_file: the file of their token; empty for none.
        workers: the addresses of embedding workers.
        workers_token_file: the file of the token of the workers; empty for none.
    """
    from trainer.job.launch.job_spec import ServersSpec
    from trainer.servers.client_updates import Mode
    from trainer.servers.run_servers import RunServers
    from trainer.servers.tls import client_tls

    authority, updates = _absolute(options.server_ca), options.server_updates
    workers_authority = "" if options.has_own_workers else authority
    # Servers on other machines have the token of the job, unless they have files of their own.
    of_job = cluster.token_file if cluster.launcher == REMOTE else ""
    token, workers_token = (
        read_token_file(one or of_job) if one or of_job else "" for one in (token_file, workers_token_file)
    )
    wire = options.wire()
    servers = RunServers(
        addresses,
        token,
        client_tls(authority),
        plan,
        Mode(updates),
        wire=wire,
        workers=workers,
        workers_tls=client_tls(workers_authority),
        workers_token=workers_token,
    )
    run = int(time.time() * 1000)
    begins_with = None if options.scaled is None else options.used
    if cluster.launcher != REMOTE:  # there they may start later, with the hosts
        begun = replace(servers, addresses=addresses[:begins_with])
        run = max(run, begun.wait(lambda address: say(f"waiting for the server at {address}")) + 1)
    return OpenServers(
        replace(servers, run=run),
        ServersSpec(
            tuple(map(str, addresses)),
            updates,
            token_file,
            authority,
            wire_ids=wire.ids,
            wire_values=wire.values,
            run=run,
            workers=tuple(map(str, workers)),
            workers_authority=workers_authority,
            workers_token_file=workers_token_file,
        ),
        folder,
        files,
        begins_with=begins_with,
        threads=options.server_threads,
    )


def server_command(options: Sequence[str], authority: str = "", threads: int = 1) -> list[str]:
    """The command line of a server.

    Args:
        options: those that the process that starts it gives.
        authority: the file of that of servers from which it takes rows; empty for none.
        threads: of its loops.
    """
    own = (*(("--server-ca", authority) if authority else ()), *(("--threads", str(threads)) if threads > 1 else ()))
    return module_command("headrace", "ps", "serve", *own, *options)


def worker_command(
    servers: Sequence[Address], authority: str, server_token_file: str, options: Sequence[str]
) -> list[str]:
    """The command line of an embedding worker of these servers, with the files of their authority and their token; empty for none."""
    own = ["--servers", ",".join(map(str, servers)), *(("--server-ca", authority) if authority else ())]
    own += ["--server-token-file", server_token_file] if server_token_file else ["--no-server-token"]
    return module_command("headrace", "ps", "worker", *own, *options)


def addresses_of(option: str, text: str) -> tuple[Address, ...]:
    """The addresses in the value of an option, which are all different. Raises :class:`InputError`."""
    from trainer.wire.flight.addresses import Address

    found = tuple(Address.parse(one.strip()) for one in text.split(","))
    if len(set(found)) != len(found):
        raise InputError("the addresses of servers must be different", where=option, value=text)
    return found
