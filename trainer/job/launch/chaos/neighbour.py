"""An unauthenticated neighbour: a process of the machine that greets the processes of a job, and changes them, without their token."""

from __future__ import annotations

import numpy as np

from trainer.errors import ServerLost
from trainer.job.launch.chaos.schedule import SERVER, WORKER
from trainer.run.reading.unit_fetching import RemoteFetcher
from trainer.run.reading.unit_requests import UnitRequest
from trainer.servers.client_updates import Greeting
from trainer.servers.tcp_link import LinkOptions, TcpLink
from trainer.tables.routes.servers.frames import Kind
from trainer.tables.routes.servers.row_messages import RowNumbers, write_gradients
from trainer.tables.routes.servers.server_link import Request
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.client import Client, Unreachable
from transforms.errors import HeadraceError, InputError

#: How long a process may take to answer.
_PATIENCE_SECS = 5.0
_UPDATES = 20


def visit(role: str, address: Address) -> bool:
    """Whether a process has refused a neighbour that greets it, and sends changes, without a token.

    Raises :class:`~trainer.wire.flight.client.Unreachable` and :class:`ServerLost` for a process that does not answer now.
    """
    if role in (SERVER, WORKER):
        return _is_refused_by_server(address)
    return _is_refused_by_reader(address) if role == "reader" else _is_refused_by_controller(address)


def _is_refused_by_server(address: Address) -> bool:
    """Greet as every place of an attempt may, and send empty updates."""
    try:
        link = TcpLink(address, LinkOptions(Greeting(token="", attempt=1 << 62), patience_secs=_PATIENCE_SECS))
    except ServerLost:
        raise
    except HeadraceError as error:
        return _is_about_token(error)
    try:
        none = RowNumbers(np.zeros(0, np.int64), np.zeros(1, np.int64))
        for number in range(1, _UPDATES + 1):
            body = write_gradients(none, np.zeros(1, np.float32), [np.zeros(0, np.float32)])
            link.send(Request(Kind.UPDATE, body, number=number))
            link.receive()
    except HeadraceError:
        return False  # it was let in
    finally:
        link.close()
    return False


def _is_refused_by_controller(address: Address) -> bool:
    """Ask it to stop."""
    client = Client(address)
    try:
        client.act("stop", b"{}", list, timeout_secs=_PATIENCE_SECS)
    except Unreachable:
        raise
    except HeadraceError as error:
        return _is_about_token(error)
    finally:
        client.close()
    return False


def _is_refused_by_reader(address: Address) -> bool:
    """Ask it for a unit."""
    fetcher = RemoteFetcher(str(address), timeout_secs=_PATIENCE_SECS)
    try:
        fetcher.fetch(UnitRequest(0, 0, "0" * 64, "fragment", 0, 1), lambda size: True)
    except Unreachable:
        raise
    except HeadraceError as error:
        return _is_about_token(error)
    finally:
        fetcher.close()
    return False


def _is_about_token(error: HeadraceError) -> bool:
    kinds = getattr(error, "kinds", ()) or (type(error).__name__,)
    return InputError.__name__ in kinds and "token" in error.what
