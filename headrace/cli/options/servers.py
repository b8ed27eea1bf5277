"""The options of parameter servers and embedding workers: those of this machine, or those at addresses."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options.launchers import GKE, LOCAL, REMOTE, TPU_VM
from headrace.cli.options.tokens import read_token_file
from headrace.terminal.output import say
from transforms.child_process import module_command
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.control.job_files import JobFiles
    from trainer.embedding.wire.settings import WireSettings
    from trainer.flight.addresses import Address
    from trainer.launch.job_spec import ServersSpec
    from trainer.launch.local_servers import LocalServers
    from trainer.planning.plan import PartitionPlan
    from trainer.servers.run_servers import RunServers
    from trainer.servers.server_moves import ServerMoves
    from trainer.servers.server_watch import ServerWatch

#: More processes on one machine are a mistake.
_MOST_LOCAL = 64
SUMMED = "summed"
#: Options that need ``--servers``, and their defaults.
_OPTIONS = {"server_token_file": "", "server_ca": "", "server_updates": SUMMED, "wire_ids": "", "wire_values": "",
            "embedding_workers": "", "least_servers": 0}  # fmt: skip

Servers = Annotated[
    str,
    typer.Option(
        "--servers",
        metavar="N|HOST:PORT,...",
        help="Keep embedding tables on parameter servers: N processes of this machine, or those at the addresses.",
        show_default=False,
    ),
]
LeastServers = Annotated[
    int,
    typer.Option(
        "--least-servers",
        help="Go on with this number of servers after a preemption notice of others. Default: wait until all are back.",
        show_default=False,
    ),
]
EmbeddingWorkers = Annotated[
    str,
    typer.Option(
        "--embedding-workers",
        metavar="N|HOST:PORT,...",
        help="Let embedding workers pool rows and sum gradients: N processes of this machine, or those at the addresses.",
        show_default=False,
    ),
]
ServerTokenFile = Annotated[
    str,
    typer.Option(
        "--server-token-file", help="A file with the token of the servers and workers at addresses.", show_default=False
    ),
]
ServerCa = Annotated[
    str,
    typer.Option(
        "--server-ca",
        help="PEM file of the authority of the certificates of servers and workers: TLS.",
        show_default=False,
    ),
]
WireIds = Annotated[
    str,
    typer.Option(
        "--wire-ids",
        metavar="plain|unique",
        help="Row numbers to and from servers: as they are, or as differences, lossless.",
        show_default=False,
    ),
]
WireValues = Annotated[
    str,
    typer.Option(
        "--wire-values",
        metavar="float32|fp16|fp14",
        help="Rows and gradients to and from servers: as they are, or rounded to 16 or 14 bits each.",
        show_default=False,
    ),
]


ServerUpdates = Annotated[
    str,
    typer.Option(
        "--server-updates",
        help="How the updates of several hosts come together: summed, once a step; or each as it arrives, at most `staleness` steps apart.",
    ),
]


def check_servers(given: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` for options that do not go with servers."""
    text = given["servers"]
    if not text:
        for option, default in _OPTIONS.items():
            if given[option] != default:
                name = f"--{option.replace('_', '-')}"
                raise InputError(
                    f"{name} must go with --servers", where=name, value=given[option], next_step="give --servers too"
                )
        return
    if given["server_updates"] not in (SUMMED, "each"):
        raise InputError("--server-updates must be summed or each", value=given["server_updates"])
    wire_of(given)
    servers = servers_of(text)
    is_number = isinstance(servers, int)
    _check_launcher(given, is_number=is_number)
    _check_workers(given, is_number=is_number)
    _check_least(given, servers if isinstance(servers, int) else len(servers))


def _check_least(given: Mapping[str, Any], servers: int) -> None:
    """Raise :class:`InputError` for a least number of servers that they do not have."""
    least = given["least_servers"]
    if not 0 <= least <= servers:
        raise InputError(
            "--least-servers must be at most the number of servers",
            where="--least-servers",
            value=least,
            allowed=f"up to {servers}",
        )


def _check_workers(given: Mapping[str, Any], *, is_number: bool) -> None:
    """Raise :class:`InputError` for embedding workers that do not go with the servers."""
    text = given["embedding_workers"]
    if not text:
        return
    if given["launcher"] != LOCAL:
        raise InputError("--embedding-workers must train on this machine", where="--embedding-workers, --launcher", value=text,
                         next_step="leave --embedding-workers out")  # fmt: skip
    if is_number and not isinstance(servers_of(text, "--embedding-workers"), int):
        raise InputError("--embedding-workers at addresses must go with --servers at addresses", where="--embedding-workers, --servers",
                         value=text, next_step="give the addresses of the workers' servers, or a number of workers")  # fmt: skip


def servers_of(text: str, option: str = "--servers") -> tuple[Address, ...] | int:
    """A number of processes, or addresses. Raises :class:`InputError` for others."""
    if not (text.isascii() and text.isdigit()):
        return addresses_of(option, text)
    if not (len(text) < 9 and 1 <= int(text) <= _MOST_LOCAL):
        raise InputError(
            f"{option} must be a number of processes, or addresses", value=text, allowed=f"1 to {_MOST_LOCAL}"
        )
    return int(text)


def _check_launcher(given: Mapping[str, Any], *, is_number: bool) -> None:
    """Raise :class:`InputError` for servers that a launcher does not start, or cannot find."""
    launcher, text = given["launcher"], given["servers"]
    if launcher == TPU_VM:
        raise InputError("a job on one slice without a cluster must hold its tables on its hosts", where="--servers, --launcher",
                         value=text, next_step="leave --servers out, or use --launcher gke")  # fmt: skip
    if launcher == GKE:
        if not is_number:
            raise InputError("--servers must be the number of servers that the cluster starts", where="--servers, --launcher",
                             value=text, allowed=f"1 to {_MOST_LOCAL}")  # fmt: skip
        for option in ("server_token_file", "server_ca"):
            if given[option]:
                raise InputError("the servers of a cluster must have the token of the job", where=f"--{option.replace('_', '-')}",
                                 value=given[option], next_step="leave this option out")  # fmt: skip
    if launcher == REMOTE and is_number:
        raise InputError("--servers must be the addresses of servers that are started elsewhere", where="--servers, --launcher",
                         value=text, allowed="host:port,...", next_step="headrace ps serve --token-file TOKEN")  # fmt: skip


def check_combinations(given: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` for options that :mod:`trainer.combinations` refuses, before anything is read."""
    from trainer.combinations import Setup, place_of, refusal_of

    hosts = {name: int(given.get(name) or 0) for name in ("hosts", "caught_up_hosts")}
    setup = Setup(
        hashed=bool(options.get("hashed")), pruned=options.get("pruning") is not None, hosts=max(1, *hosts.values()),
        servers=bool(given["servers"]), workers=bool(given["embedding_workers"]), plan=bool(given.get("plan")),
        towers=bool(given.get("towers")), tpu=bool(given.get("tpu")), least_servers=bool(given.get("least_servers")),
        hot=options.get("hot_rows") is not None, rounded=given.get("wire_values") not in (None, "", "float32"),
    )  # fmt: skip
    if (found := refusal_of(setup)) is not None:
        option = found.options[0]
        value = setup.hosts if option == "hosts" else given.get(option) or options.get(option)
        raise InputError(found.what, where=place_of(found), value=str(value)[:200],
                         next_step=found.next_step)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpenServers:
    """The servers of a run.

    Attributes:
        servers: for training in this process.
        spec: for the hosts of a job.
        folder: of the run.
        files: of the job, with the token of the processes that are started.
        local: those that were started; None: they are at addresses.
        watched: watches them since they have answered; None: nothing does.
    """

    servers: RunServers
    spec: ServersSpec
    folder: str
    files: JobFiles
    local: LocalServers | None = None
    watched: ServerWatch | None = None

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
        from trainer.launch.local_servers import LocalServers
        from trainer.servers.move_documents import MoveFiles
        from trainer.servers.server_moves import ServerMoves

        logs = Path(self.folder) / "logs"

        def start(count: int) -> LocalServers:
            self.files.make_token()
            return LocalServers(count, server_command, token_file=self.files.token, logs=logs).__enter__()

        return ServerMoves(self.servers, MoveFiles.of_run(self.folder), start=start, started=self.local, tell=say)


@contextmanager
def open_servers(
    given: Mapping[str, Any], folder: str, job_folder: str, plan: PartitionPlan | None
) -> Iterator[OpenServers | None]:
    """The servers and embedding workers of a run while it trains; None without ``--servers``.

    Those of this machine are started with the token of the job, and end with the context; those at addresses must answer.
    """
    text = given["servers"]
    if not text:
        yield None
        return
    from trainer.control.job_files import JobFiles
    from trainer.launch.local_servers import LocalServers
    from trainer.servers.server_watch import watch_servers

    files = JobFiles(Path(job_folder).absolute())
    count = int(text) if text.isascii() and text.isdigit() else len(text.split(","))
    if plan is not None and plan.cores != count:
        raise InputError("a plan must have a core for each server", where="--plan, --servers", value=f"{plan.cores} cores", allowed=str(count),
                         next_step=f"headrace plan make MODEL --topology ps:{count} --output FILE")  # fmt: skip
    logs, of_workers = Path(folder) / "logs", given["embedding_workers"]
    own: LocalServers | None = None
    if text.isdigit() or of_workers.isdigit():
        files.make_token()
    token_file = str(files.token) if text.isdigit() else _file_of(given, "server_token_file")
    with ExitStack() as started:
        if text.isdigit():
            own = started.enter_context(LocalServers(count, server_command, token_file=files.token, logs=logs))
            addresses = own.addresses
        else:
            addresses = addresses_of("--servers", text)
        workers: tuple[Address, ...] = ()
        workers_token_file = token_file
        if of_workers.isdigit():
            workers_token_file = str(files.token)
            command = partial(worker_command, addresses, _file_of(given, "server_ca"), token_file)
            local = LocalServers(
                int(of_workers), command, token_file=files.token, logs=logs, kind="w", has_rows=False
            )  # fmt: skip
            workers = started.enter_context(local).addresses
        elif of_workers:
            workers = addresses_of("--embedding-workers", of_workers)
        found = servers_at(addresses, given, plan, folder, files, token_file, workers, workers_token_file)
        yield replace(found, local=own, watched=started.enter_context(watch_servers(found.servers)))


def _file_of(given: Mapping[str, Any], name: str) -> str:
    """The path of an option's file, such as that of the token of servers at addresses; empty for none."""
    return str(Path(given[name]).absolute()) if given[name] else ""


def servers_at(
    addresses: tuple[Address, ...],
    given: Mapping[str, Any],
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
        given: the options of the command.
        plan: by which they hold tables; None: rows are spread over them.
        folder: of the run.
        files: of its job.
        token_file: the file of their token; empty for none.
        workers: the addresses of embedding workers.
        workers_token_file: the file of the token of the workers; empty for none.
    """
    from trainer.launch.job_spec import ServersSpec
    from trainer.servers.client_updates import Mode
    from trainer.servers.run_servers import RunServers
    from trainer.servers.tls import client_tls

    authority, updates = _file_of(given, "server_ca"), given["server_updates"]
    workers_authority = "" if given["embedding_workers"].isdigit() else authority
    # Servers on other machines have the token of the job, unless they have files of their own.
    of_job = given["token_file"] if given["launcher"] == REMOTE else ""
    token, workers_token = (
        read_token_file(one or of_job) if one or of_job else "" for one in (token_file, workers_token_file)
    )
    wire = wire_of(given)
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
    if given["launcher"] != REMOTE:  # there they may start later, with the hosts
        run = max(run, servers.wait(lambda address: say(f"waiting for the server at {address}")) + 1)
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
    )


def server_command(options: Sequence[str]) -> list[str]:
    """The command line of a server."""
    return module_command("headrace", "ps", "serve", *options)


def worker_command(
    servers: Sequence[Address], authority: str, server_token_file: str, options: Sequence[str]
) -> list[str]:
    """The command line of an embedding worker of these servers, with the files of their authority and their token; empty for none."""
    own = ["--servers", ",".join(map(str, servers)), *(("--server-ca", authority) if authority else ())]
    own += ["--server-token-file", server_token_file] if server_token_file else ["--no-server-token"]
    return module_command("headrace", "ps", "worker", *own, *options)


def wire_of(given: Mapping[str, Any]) -> WireSettings:
    """The encodings of messages. Raises :class:`InputError` for unknown ones."""
    from trainer.embedding.wire.settings import IDS, VALUES, WireSettings

    for name, known in (("wire_ids", IDS), ("wire_values", VALUES)):
        option = f"--{name.replace('_', '-')}"
        if given[name] and given[name] not in known:
            raise InputError(f"{option} must be a known encoding", where=option, value=given[name], allowed=", ".join(known))  # fmt: skip
    return WireSettings(given["wire_ids"] or IDS[0], given["wire_values"] or VALUES[0])


def addresses_of(option: str, text: str) -> tuple[Address, ...]:
    """The addresses in the value of an option, which are all different. Raises :class:`InputError`."""
    from trainer.flight.addresses import Address

    found = tuple(Address.parse(one.strip()) for one in text.split(","))
    if len(set(found)) != len(found):
        raise InputError("the addresses of servers must be different", where=option, value=text)
    return found
