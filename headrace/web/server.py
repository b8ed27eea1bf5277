"""The server of the pages: one process, threads for pages, loopback unless the configuration says otherwise."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable

import uvicorn

from headrace.web.app import make_app
from headrace.web.config import WebConfig
from headrace.web.connections import TimedConnection
from transforms.errors import StorageError
from warehouse.warehouse import Warehouse

#: Seconds that a connection stays open after an answer, and the most connections that are accepted at once.
_KEEP_ALIVE_SECS, _ACCEPTED_AT_ONCE = 5, 100


def serve(
    warehouse: Warehouse, config: WebConfig, on_ready: Callable[[str], None], *, patient: Warehouse | None = None
) -> None:
    """Serve the pages until SIGINT or SIGTERM. ``on_ready``: gets the address to open, with the token in it if a random one is used.

    ``patient``: see :func:`~headrace.web.app.make_app`. Raises :class:`~transforms.errors.StorageError` if the address is taken.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((config.host, config.port))
        except OSError as error:
            raise StorageError("the address must be free", where="--host and --port", value=f"{config.host}:{config.port}: {error.strerror}",
                               next_step="name another --port; 0 takes a free one") from error  # fmt: skip
        port = listening.getsockname()[1]
        token = config.token or secrets.token_urlsafe(24)
        app = make_app(warehouse, config, token=token, port=lambda: port, patient=patient)
        settings = uvicorn.Config(app, http=TimedConnection, ws="none", log_level="error", access_log=False, server_header=False, date_header=False,
                                  proxy_headers=False, timeout_keep_alive=_KEEP_ALIVE_SECS, timeout_graceful_shutdown=3, backlog=_ACCEPTED_AT_ONCE,
                                  h11_max_incomplete_event_size=32_768)  # fmt: skip
        host = f"[{config.host}]" if ":" in config.host else config.host
        entrance = "" if config.user_header else "enter" if config.token else f"enter?token={token}"
        on_ready(f"http://{host}:{port}/{entrance}")
        uvicorn.Server(settings).run(sockets=[listening])
