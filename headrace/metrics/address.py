"""The address of an endpoint of metrics, as a user gives it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from transforms.errors import InputError

_LOOPBACK = "127.0.0.1"
_MOST_PORT = 65535
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z|[0-9a-fA-F:.]{2,45}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """A host and a port; port 0 lets the system choose one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> MetricsAddress:
        """The address in ``HOST:PORT``, or ``PORT`` on loopback; an IPv6 host is in brackets. Raises :class:`InputError`."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") or _LOOPBACK
        is_number = port.isascii() and port.isdigit() and len(port) <= len(str(_MOST_PORT))
        if not is_number or int(port) > _MOST_PORT or not _HOST.match(host):
            raise InputError("the address of metrics must be HOST:PORT, or a port of this machine alone", where="--metrics-address",
                             value=text[:200], allowed="such as 9464, 127.0.0.1:0 or 0.0.0.0:9464")  # fmt: skip
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

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
