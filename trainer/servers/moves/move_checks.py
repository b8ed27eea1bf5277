"""Which requests to move tables are possible, in one process and in jobs, and the run number under which new servers are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from trainer.errors import ConfigError
from trainer.options.combinations import refusal_of
from trainer.servers.client_updates import Greeting
from trainer.servers.moves.move_documents import MoveRequest
from trainer.servers.run_servers import RunServers
from trainer.servers.session_roles import SessionRole
from trainer.servers.tcp_link import LinkOptions, TcpLink
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.frames import Kind, write_document
from trainer.tables.routes.servers.named_servers import NamedServers
from trainer.tables.routes.servers.served_engine import ServedEngine
from trainer.tables.routes.servers.server_link import Request
from trainer.tables.routes.servers.stacked_plan import with_stacks
from trainer.wire.flight.addresses import Address
from transforms.errors import InputError, listed

#: How long a server of a request may take for its first answer.
FIRST_ANSWER_SECS = 10.0


def check_other_servers(servers: Sequence[Address], before: Sequence[Address]) -> None:
    """Raise :class:`ConfigError` for servers that have the tables already."""
    kept = [one for one in servers if one in before]
    if kept:
        raise ConfigError("ps move needs other servers than the current ones", where="--servers", value=listed(list(map(str, kept))),
                          allowed="servers that this training does not use now",
                          next_step="start a server at another port for each of them: headrace ps serve")  # fmt: skip


def check_request(request: MoveRequest, training: str, servers: RunServers) -> None:
    """Raise :class:`ConfigError` for a request that the training ``training``, whose tables are on ``servers``, does not meet."""
    if request.training != training:
        raise ConfigError("a request must be for the training that runs", value=request.training, allowed=training,
                          next_step="ask again")  # fmt: skip
    if not isinstance(request.servers, int):
        check_other_servers(request.servers, servers.addresses)
    if servers.plan is not None and request.plan is None:
        raise ConfigError("moving the tables of a training with --plan needs a plan for the new servers", where="--plan",
                          next_step=f"headrace plan make MODEL --topology ps:{request.count} --output FILE")  # fmt: skip


def check_movable(engine: ServedEngine, request: MoveRequest) -> PsEngine:
    """The engine, if its tables may be moved while training runs.

    Raises :class:`InputError` for others, and :class:`ConfigError` for a plan of other tables.
    """
    if (found := refusal_of(replace(engine.setup, moves=True, plan=request.plan is not None))) is not None:
        raise InputError(found.what, where="--servers", value=str(request.count), next_step=found.next_step)
    if request.plan is not None:
        TableParts(engine.tables, request.count, with_stacks(request.plan, engine.tables, request.count))
    return engine.direct


def taken_over(found: RunServers, before: RunServers, now_secs: float, check: Callable[[], None]) -> RunServers:
    """``found`` with a run number above all earlier numbers of these servers and of ``before``.

    ``check`` ends the wait for their first answers. Raises :class:`~trainer.errors.ServerLost` for one that does not answer, here or to an
    embedding worker, and for one of ``before`` that does not answer to one of these servers, which take its rows.
    """
    highest = replace(found, patience_secs=FIRST_ANSWER_SECS).wait(lambda address: check())
    for server in found.addresses:
        _check_reach(server, before.named, found, check)
    for worker in found.workers:
        _check_reach(worker, found.named, found, check)
    return replace(found, run=max(int(now_secs * 1000), highest + 1, before.run + 1))


def _check_reach(process: Address, named: NamedServers, servers: RunServers, check: Callable[[], None]) -> None:
    """Let a server or an embedding worker of ``servers`` connect to those that are named. Raises what it cannot."""
    is_worker = process in servers.workers
    token, tls = (servers.workers_token, servers.workers_tls) if is_worker else (servers.token, servers.tls)
    greeting = Greeting(token=token, role=SessionRole.WATCHES)
    patience_secs = 2 * servers.patience_secs  # the own wait of the process ends before
    link = TcpLink(process, LinkOptions(greeting, patience_secs=patience_secs, tls=tls, check=check))
    try:
        link.send(Request(Kind.REACH_SERVERS, [write_document(named.to_document())]))
        link.receive()
    finally:
        link.close()
