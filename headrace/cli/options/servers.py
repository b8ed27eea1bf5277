"""The options of parameter servers: those of this machine, or those at addresses."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options.tokens import read_token_file
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.embedding.wire.settings import WireSettings
    from trainer.planning.plan import PartitionPlan
    from trainer.servers.run_servers import RunServers

#: More processes on one machine are a mistake.
_MOST_LOCAL = 64

Servers = Annotated[
    str,
    typer.Option(
        "--servers",
        metavar="N|HOST:PORT,...",
        help="Keep embedding tables on parameter servers: N processes of this machine, or those at the addresses.",
        show_default=False,
    ),
]
ServerTokenFile = Annotated[
    str,
    typer.Option("--server-token-file", help="A file with the token of the servers at addresses.", show_default=False),
]
ServerCa = Annotated[
    str,
    typer.Option(
        "--server-ca", help="PEM file of the authority of the servers' certificates: TLS.", show_default=False
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
        help="Rows and gradients to and from servers: as they are, or rounded to 16 or 14 bits a value.",
        show_default=False,
    ),
]


def check_servers(given: Mapping[str, Any], job: object, tpus: object) -> None:
    """Raise :class:`InputError` for options that do not go with servers."""
    text = given["servers"]
    if not text:
        for option in ("server_token_file", "server_ca", "wire_ids", "wire_values"):
            if given[option]:
                name = f"--{option.replace('_', '-')}"
                raise InputError(
                    f"{name} must go with --servers", where=name, value=given[option], next_step="give --servers too"
                )
        return
    for option, other in (("--hosts", job), ("--tpu", tpus)):
        if other is not None:
            raise InputError("--servers must train in this process", where=f"--servers, {option}", value=text,
                             next_step=f"leave {option} out")  # fmt: skip
    _wire(given)
    if text.isascii() and text.isdigit():
        if not 1 <= int(text) <= _MOST_LOCAL:
            raise InputError(
                "--servers must be a number of processes, or addresses", value=text, allowed=f"1 to {_MOST_LOCAL}"
            )
        return
    _addresses(text)


@contextmanager
def open_servers(given: Mapping[str, Any], folder: str, plan: PartitionPlan | None) -> Iterator[RunServers | None]:
    """The servers of a run while it trains; None without ``--servers``. Those of this machine are started, and end with the context."""
    text = given["servers"]
    if not text:
        yield None
        return
    from trainer.launch.local_servers import LocalServers
    from trainer.servers.run_servers import RunServers
    from trainer.servers.tls import client_tls

    count = int(text) if text.isascii() and text.isdigit() else len(text.split(","))
    if plan is not None and plan.cores != count:
        raise InputError("a plan must have a core for each server", where="--plan, --servers", value=f"{plan.cores} cores", allowed=str(count),
                         next_step=f"headrace plan make MODEL --topology ps:{count} --output FILE")  # fmt: skip
    token = read_token_file(given["server_token_file"]) if given["server_token_file"] else ""
    if not text.isdigit():
        yield RunServers(_addresses(text), token, client_tls(given["server_ca"]), plan, wire=_wire(given))
        return
    with LocalServers(count, server_command, logs=Path(folder) / "logs") as servers:
        yield RunServers(servers.addresses, plan=plan, wire=_wire(given))


def server_command(options: Sequence[str]) -> list[str]:
    """The command line of a server."""
    return [sys.executable, "-m", "headrace", "ps", "serve", *options]


def _wire(given: Mapping[str, Any]) -> WireSettings:
    """The encodings of messages. Raises :class:`InputError` for unknown ones."""
    from trainer.embedding.wire.settings import IDS, VALUES, WireSettings

    for name, known in (("wire_ids", IDS), ("wire_values", VALUES)):
        option = f"--{name.replace('_', '-')}"
        if given[name] and given[name] not in known:
            raise InputError(f"{option} must be a known encoding", where=option, value=given[name], allowed=", ".join(known))  # fmt: skip
    return WireSettings(given["wire_ids"] or IDS[0], given["wire_values"] or VALUES[0])


def _addresses(text: str) -> tuple[Any, ...]:
    from trainer.flight.addresses import Address

    found = tuple(Address.parse(one.strip()) for one in text.split(","))
    if len(set(found)) != len(found):
        raise InputError("the addresses of servers must be different", where="--servers", value=text)
    return found
