"""Connections of one server or embedding worker to others that a client has named."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from trainer.errors import ConfigError
from trainer.servers.client_updates import Greeting
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables.routes.servers.named_servers import NamedServers
from trainer.tables.routes.servers.server_link import Connect

#: Connect to each of the named servers with a greeting, to which their token is added; the function is called while a request waits, and raises
#: to end it. Raises :class:`ConfigError` for servers that cannot be verified.
ConnectNamed: TypeAlias = Callable[[Greeting, NamedServers, Callable[[], None]], Sequence[Connect]]


@dataclass(frozen=True, slots=True)
class NamedLinks:
    """A :data:`ConnectNamed` over TCP.

    Attributes:
        tls: what verifies servers with TLS; None: there is no authority for them.
        patience_secs: how long a server may be silent, or away.
        command: with which a user starts this process, for errors.
    """

    tls: ssl.SSLContext | None = None
    patience_secs: float = 20.0
    command: str = "headrace ps serve"

    def __call__(self, greeting: Greeting, named: NamedServers, check: Callable[[], None]) -> Sequence[Connect]:
        """Connect; see :data:`ConnectNamed`."""
        if named.is_encrypted and self.tls is None:
            raise ConfigError("a process must have the authority of the servers with TLS that it connects to", where=str(named.addresses[0]),
                              next_step=f"start it with {self.command} --server-ca FILE")  # fmt: skip
        options = LinkOptions(
            replace(greeting, token=named.token),
            patience_secs=self.patience_secs,
            tls=self.tls if named.is_encrypted else None,
            check=check,
        )
        return [connect_to(address, options) for address in named.addresses]
