"""``headrace ps``: parameter servers, which hold the rows of embedding tables for training, and embedding workers."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.move_servers import move
from headrace.cli.options.metrics import MetricsOptions
from headrace.cli.options.option_groups import grouped
from headrace.cli.options.servers import addresses_of
from headrace.cli.options.session import AsJson
from headrace.cli.options.tokens import read_token_file
from headrace.cli.scale_servers import scale
from headrace.terminal.logs import log_as_role
from headrace.terminal.output import emit, say
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.servers.service import ServiceLimits
    from trainer.wire.flight.addresses import Address

app = typer.Typer(
    help="Parameter servers, which hold rows of embedding tables, and embedding workers, which pool them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TokenFile = Annotated[
    str, typer.Option("--token-file", help="A file with the token of the servers.", show_default=False)
]
OwnTokenFile = Annotated[
    str, typer.Option("--token-file", help="A file with the token that clients must have.", show_default=False)
]
NoToken = Annotated[
    bool,
    typer.Option("--no-token", help="Let every process of this machine change the rows; on loopback alone."),
]
Listening = Annotated[str, typer.Option("--address", help="Where it listens, as host:port; port 0 is any.")]
MessageMib = Annotated[int, typer.Option("--message-mib", help="Memory for messages at once, in MiB.", min=1)]
Certificate = Annotated[
    str, typer.Option("--certificate", help="PEM file of a TLS certificate: connections are encrypted.")
]
Key = Annotated[str, typer.Option("--key", help="PEM file of its key. Default: in the certificate's file.")]
AddressFile = Annotated[
    str,
    typer.Option("--address-file", help="Also write the address to this file, once it listens.", show_default=False),
]
Supervisor = Annotated[
    int, typer.Option("--supervisor", help="The process that started this one; it ends with it.", hidden=True)
]
_MIB = 1 << 20
_MOST_DRAIN_SECS = 86_400.0
TerminatedStatus = Annotated[
    int,
    typer.Option(
        help="The exit status after SIGTERM. A cluster starts a process again whose status is not 0.", min=0, max=255
    ),
]
DrainSecs = Annotated[
    float,
    typer.Option(
        help="After SIGTERM, how long clients may take to commit before the process ends; new ones are refused."
    ),
]


@app.command("serve")
@grouped
def serve(
    address: Listening = "127.0.0.1:0",
    memory: Annotated[
        str,
        typer.Option(
            help="Folder for the rows, in shared memory: a server that starts again with it goes on from them. Default: a new one in /dev/shm.",
            show_default=False,
        ),
    ] = "",
    token_file: OwnTokenFile = "",
    no_token: NoToken = False,
    threads: Annotated[int, typer.Option(help="Threads of its loops.", min=1)] = 1,
    message_mib: MessageMib = 2048,
    patience_secs: Annotated[
        float, typer.Option(help="The longest wait for a client's bytes, or other clients' updates.")
    ] = 300.0,
    runs: Annotated[
        list[str] | None,
        typer.Option(
            "--runs",
            help="Folder or gs://bucket/path whose runs it may write and read: it saves its rows there itself. May be repeated.",
            show_default=False,
        ),
    ] = None,
    certificate: Certificate = "",
    key: Key = "",
    server_ca: Annotated[
        str,
        typer.Option(
            help="PEM file of the authority of the certificates of other servers, from which headrace ps move takes rows: TLS."
        ),
    ] = "",
    address_file: AddressFile = "",
    terminated_status: TerminatedStatus = 0,
    drain_secs: DrainSecs = 25.0,
    supervisor: Supervisor = 0,
    *,
    metrics: MetricsOptions,
) -> None:
    """Serve rows until SIGTERM, after which clients may commit. A killed process is replaced at once, and finds its rows in shared memory."""
    from headrace.metrics.process import Process
    from trainer.job.launch.server_process import ServerOptions, run_server
    from trainer.servers.allowed_runs import allowed_runs
    from trainer.servers.tls import client_tls, server_tls
    from trainer.wire.flight.addresses import Address, check_token

    _begin("server", metrics.metrics_name, address, supervisor, terminated_status)
    token = _own_token(token_file, no_token)
    place = Address.parse(address)
    check_token(place, token)
    _check_drain(drain_secs)
    limits, tls = _limits(message_mib, patience_secs), server_tls(certificate, key)
    if memory and not Path(memory).parent.is_dir():
        raise InputError("the folder of the memory must be in an existing folder", where="--memory", value=memory)
    folder = Path(
        memory or tempfile.mkdtemp(prefix="headrace-ps-", dir="/dev/shm")
    )  # a name that no other user knows before
    options = ServerOptions(
        place,
        folder,
        token,
        threads,
        limits,
        patience_secs,
        tls,
        drain_secs,
        allowed_runs(runs or ()),
        client_tls(server_ca),
    )

    def listening(place: Address) -> None:
        say(f"serving rows at {place}, memory in {folder}")
        _write_address(address_file, place)

    try:
        with metrics.bound(Process("server", folder.name, run=",".join(runs or ()))) as serve_metrics:
            status = run_server(replace(options, serve_metrics=serve_metrics), listening)
    finally:
        if not memory:  # no other server would find it
            shutil.rmtree(folder, ignore_errors=True)
    if status or terminated_status:
        raise typer.Exit(status or terminated_status)


@app.command("worker")
@grouped
def worker(
    servers: Annotated[str, typer.Option(help="Addresses of the servers, as host:port, in the order of the clients'.")],
    address: Listening = "127.0.0.1:0",
    token_file: OwnTokenFile = "",
    no_token: NoToken = False,
    server_token_file: Annotated[
        str,
        typer.Option(help="A file with the token of the servers. Default: that of --token-file.", show_default=False),
    ] = "",
    no_server_token: Annotated[
        bool, typer.Option("--no-server-token", help="The servers have no token, and --token-file is not theirs.")
    ] = False,
    threads: Annotated[int, typer.Option(help="Threads of its loops for a client.", min=1)] = 1,
    message_mib: MessageMib = 2048,
    patience_secs: Annotated[float, typer.Option(help="The longest wait for a client's bytes.")] = 300.0,
    certificate: Certificate = "",
    key: Key = "",
    server_ca: Annotated[str, typer.Option(help="PEM file of the authority of the servers' certificates: TLS.")] = "",
    address_file: AddressFile = "",
    terminated_status: TerminatedStatus = 0,
    drain_secs: DrainSecs = 25.0,
    supervisor: Supervisor = 0,
    *,
    metrics: MetricsOptions,
) -> None:
    """Pool rows of servers, and sum gradients by row, until SIGTERM, after which a job that has no other worker may commit.

    A killed process is replaced at once.
    """
    from headrace.metrics.process import Process
    from trainer.job.launch.worker_process import WorkerOptions, run_worker
    from trainer.servers.tls import client_tls, server_tls
    from trainer.wire.flight.addresses import Address

    _begin("embedding_worker", metrics.metrics_name, address, supervisor, terminated_status)
    _check_drain(drain_secs)
    addresses = addresses_of("--servers", servers)
    if server_token_file and no_server_token:
        raise _both("--server-token-file", "--no-server-token")
    token = _own_token(token_file, no_token)
    server_token = read_token_file(server_token_file) if server_token_file else "" if no_server_token else token
    options = WorkerOptions(
        addresses,
        Address.parse(address),
        token,
        threads,
        _limits(message_mib, patience_secs),
        tls=server_tls(certificate, key),
        server_tls=client_tls(server_ca),
        server_token=server_token,
        drain_secs=drain_secs,
    )

    def listening(place: Address) -> None:
        say(f"pooling rows at {place}, of the servers at {servers}")
        _write_address(address_file, place)

    with metrics.bound(Process("embedding_worker", address)) as serve_metrics:
        status = run_worker(replace(options, serve_metrics=serve_metrics), listening)
    if status := status or terminated_status:
        raise typer.Exit(status)


def _begin(role: str, name: str, address: str, supervisor: int, terminated_status: int) -> None:
    """Log to standard error, and end with the process that started this one, if there is one, and by SIGTERM before it serves."""
    from trainer.job.launch.role_signals import end_with_supervisor

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(terminated_status))

    log_as_role(role, name=name, address=address)
    if supervisor:
        end_with_supervisor(supervisor)


def _check_drain(drain_secs: float) -> None:
    """Raise :class:`InputError` for a time that is not a number of seconds within its limit."""
    if not 0 <= drain_secs <= _MOST_DRAIN_SECS:
        raise InputError(
            "--drain-secs must be a number of seconds", value=drain_secs, allowed=f"0 to {_MOST_DRAIN_SECS:g}"
        )


def _own_token(token_file: str, no_token: bool) -> str:
    """The token that clients must have; empty if the user wants none. Raises :class:`InputError` for neither, and for both."""
    if token_file and no_token:
        raise _both("--token-file", "--no-token")
    if not token_file and not no_token:
        raise InputError("a server must have a token", where="--token-file",
                         allowed="a file with a token; or --no-token, with which every process of this machine may change the rows",
                         next_step="(umask 077; openssl rand -hex 32 >token), then give --token-file token")  # fmt: skip
    return read_token_file(token_file) if token_file else ""


def _both(option: str, other: str) -> InputError:
    return InputError(
        f"{option} must go without {other}", where=f"{option}, {other}", next_step="leave one of them out"
    )


def _limits(message_mib: int, patience_secs: float) -> ServiceLimits:
    """The limits of a process's messages. Raises :class:`InputError` for a patience that is not above zero."""
    from trainer.servers.service import ServiceLimits

    if not patience_secs > 0:
        raise InputError("--patience-secs must be > 0", value=patience_secs)
    return ServiceLimits(min(message_mib * _MIB, 1 << 30), message_mib * _MIB, patience_secs)


def _write_address(path: str, place: Address) -> None:
    """Write an address to a file, whole, if there is one."""
    if path:
        new = Path(f"{path}.new")
        new.write_text(str(place))
        new.replace(path)


@app.command("status")
def status(
    servers: Annotated[list[str], typer.Argument(help="Addresses of servers, as host:port.")],
    token_file: TokenFile = "",
    tls_ca: Annotated[
        str, typer.Option("--tls-ca", help="PEM file of the authority of the servers' certificates.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show what servers hold, and what servers and embedding workers have done."""
    from headrace.screens.parameter_servers import ServerRow, ServersScreen
    from trainer.servers.server_status import read_status
    from trainer.servers.tls import client_tls
    from trainer.wire.flight.addresses import Address

    token, tls = read_token_file(token_file) if token_file else "", client_tls(tls_ca)
    rows = [ServerRow.of(one, read_status(Address.parse(one), token=token, tls=tls)) for one in servers]
    emit(ServersScreen(tuple(rows)), as_json=as_json)


app.command("move")(move)
app.command("scale")(scale)
