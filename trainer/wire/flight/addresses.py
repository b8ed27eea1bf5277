"""The address of a service, and which services need a token."""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass

from trainer.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; port 0 lets the system choose one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address in ``host:port``, with an IPv6 host in brackets. Raises :class:`ConfigError`."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ConfigError("an address must be host:port", value=text, allowed="such as 127.0.0.1:8815")
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this machine reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def uri(self) -> str:
        """The address as Arrow Flight writes it."""
        return f"grpc://{self}"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


#: Any free port, for processes of this machine.
LOOPBACK = Address("127.0.0.1", 0)


def check_token(address: Address, token: str) -> None:
    """Raise :class:`ConfigError` for a service that other machines reach and that has no token."""
    if not address.is_loopback and not token:
        raise ConfigError("a service off loopback must have a token", where=str(address),
                          next_step="give --token-file, or serve on 127.0.0.1")  # fmt: skip
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError("a token must be printable ASCII without spaces", where=str(address))


def is_token(given: str | bytes, token: str) -> bool:
    """Whether what a client gave is the token, in a time that does not depend on where the two differ."""
    found = (
        given if isinstance(given, bytes) else given.encode(errors="surrogatepass")
    )  # a client may send any code points
    return hmac.compare_digest(found, token.encode())
