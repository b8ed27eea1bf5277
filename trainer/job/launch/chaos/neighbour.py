"""An unauthenticated neighbour: a process of the machine that greets the processes of a job, and changes them, without their token."""

from __future__ import annotations

import numpy as np

from trainer.errors import ServerLost
from trainer.job.launch.chaos.schedule import SERVER, WORKER
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
#: What a neighbour asks of processes with actions: to stop, and to deliver.
_ACTIONS = {"controller": "stop", "reader": "unit"}


def visit(role: str, address: Address) -> bool:
    """Whether a process has refused a neighbour that greets it, and sends changes, without a token.

    Raises :class:`~trainer.wire.flight.client.Unreachable` and :class:`ServerLost` for a process that does not answer now.
    """
    return _is_refused_by_server(address) if role in (SERVER, WORKER) else _is_refused_by_service(role, address)


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


def _is_refused_by_service(role: str, address: Address) -> bool:
    client = Client(address)
    try:
        client.act(_ACTIONS[role], b"{}", list, timeout_secs=_PATIENCE_SECS)
    except Unreachable:
        raise
    except HeadraceError as error:
        return _is_about_token(error)
    finally:
        client.close()
    return False


def _is_about_token(error: HeadraceError) -> bool:
    kinds = getattr(error, "kinds", ()) or (type(error).__name__,)
    return InputError.__name__ in kinds and "token" in error.what
