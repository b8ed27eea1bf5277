"""``headrace ps``: parameter servers, which hold the rows of embedding tables for training, and embedding workers."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.move_servers import move
from headrace.cli.options.servers import addresses_of
from headrace.cli.options.session import AsJson
from headrace.cli.options.tokens import read_token_file
from headrace.terminal.output import emit, say
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.flight.addresses import Address
    from trainer.servers.service import ServiceLimits

app = typer.Typer(
    help="Parameter servers, which hold rows of embedding tables, and embedding workers, which pool them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TokenFile = Annotated[
    str, typer.Option("--token-file", help="A file with the token of the servers.", show_default=False)
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


@app.command("serve")
def serve(
    address: Listening = "127.0.0.1:0",
    memory: Annotated[
        str,
        typer.Option(
            help="Folder for the rows, in shared memory: a server that starts again with it goes on from them. Default: a new one in /dev/shm.",
            show_default=False,
        ),
    ] = "",
    token_file: TokenFile = "",
    threads: Annotated[int, typer.Option(help="Threads of its loops.", min=1)] = 1,
    message_mib: MessageMib = 2048,
    patience_secs: Annotated[
        float, typer.Option(help="The longest wait for a client's bytes, or other clients' updates.")
    ] = 300.0,
    certificate: Certificate = "",
    key: Key = "",
    address_file: AddressFile = "",
    terminated_status: Annotated[
        int,
        typer.Option(
            help="The exit status after SIGTERM. A cluster starts a process again whose status is not 0.",
            min=0,
            max=255,
        ),
    ] = 0,
    drain_secs: Annotated[
        float,
        typer.Option(
            help="After SIGTERM, how long clients may take to commit before the server ends; new ones are refused."
        ),
    ] = 25.0,
    supervisor: Supervisor = 0,
) -> None:
    """Serve rows until SIGTERM, after which clients may commit. A killed process is replaced at once, and finds its rows in shared memory."""
    from trainer.flight.addresses import Address
    from trainer.launch.server_process import ServerOptions, run_server
    from trainer.servers.tls import server_tls

    _begin(supervisor, terminated_status)
    if not 0 <= drain_secs <= _MOST_DRAIN_SECS:
        raise InputError(
            "--drain-secs must be a number of seconds", value=drain_secs, allowed=f"0 to {_MOST_DRAIN_SECS:g}"
        )
    folder = Path(memory) if memory else Path("/dev/shm") / f"headrace-ps-{os.getpid()}"
    if not folder.parent.is_dir():
        raise InputError("the folder of the memory must be in an existing folder", where="--memory", value=str(folder))
    options = ServerOptions(
        Address.parse(address),
        folder,
        read_token_file(token_file) if token_file else "",
        threads,
        _limits(message_mib, patience_secs),
        patience_secs,
        server_tls(certificate, key),
        drain_secs,
    )

    def listening(place: Address) -> None:
        say(f"serving rows at {place}, memory in {folder}")
        _write_address(address_file, place)

    try:
        status = run_server(options, listening)
    finally:
        if not memory:  # no other server would find it
            shutil.rmtree(folder, ignore_errors=True)
    if status or terminated_status:
        raise typer.Exit(status or terminated_status)


@app.command("worker")
def worker(
    servers: Annotated[str, typer.Option(help="Addresses of the servers, as host:port, in the order of the clients'.")],
    address: Listening = "127.0.0.1:0",
    token_file: TokenFile = "",
    threads: Annotated[int, typer.Option(help="Threads of its loops for a client.", min=1)] = 1,
    message_mib: MessageMib = 2048,
    patience_secs: Annotated[float, typer.Option(help="The longest wait for a client's bytes.")] = 300.0,
    certificate: Certificate = "",
    key: Key = "",
    server_ca: Annotated[str, typer.Option(help="PEM file of the authority of the servers' certificates: TLS.")] = "",
    address_file: AddressFile = "",
    supervisor: Supervisor = 0,
) -> None:
    """Pool rows of servers, and sum gradients by row, until SIGTERM, after which it answers what it has begun. A killed process is replaced at once."""
    from trainer.flight.addresses import Address
    from trainer.launch.worker_process import WorkerOptions, run_worker
    from trainer.servers.tls import client_tls, server_tls

    _begin(supervisor)
    addresses = addresses_of("--servers", servers)
    options = WorkerOptions(
        addresses,
        Address.parse(address),
        read_token_file(token_file) if token_file else "",
        threads,
        _limits(message_mib, patience_secs),
        tls=server_tls(certificate, key),
        server_tls=client_tls(server_ca),
    )

    def listening(place: Address) -> None:
        say(f"pooling rows at {place}, of the servers at {servers}")
        _write_address(address_file, place)

    if status := run_worker(options, listening):
        raise typer.Exit(status)


def _begin(supervisor: int, terminated_status: int = 0) -> None:
    """Log to standard error, and end with the process that started this one, if there is one, and by SIGTERM before it serves."""
    from trainer.launch.role_signals import end_with_supervisor

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(terminated_status))

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
    if supervisor:
        end_with_supervisor(supervisor)


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
    from trainer.flight.addresses import Address
    from trainer.servers.server_status import read_status
    from trainer.servers.tls import client_tls

    token, tls = read_token_file(token_file) if token_file else "", client_tls(tls_ca)
    rows = [ServerRow.of(one, read_status(Address.parse(one), token=token, tls=tls)) for one in servers]
    emit(ServersScreen(tuple(rows)), as_json=as_json)


app.command("move")(move)
