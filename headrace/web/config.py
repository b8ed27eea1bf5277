"""The configuration of the pages, validated once."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from headrace.views.jobs import FindPlace, JobPlace
from transforms.errors import InputError

DEFAULT_PORT = 8321
#: The longest time that a page may read the catalog in one go.
READ_SECS = 10.0
#: The least characters of a token that a file gives.
LEAST_TOKEN = 16

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HOST = re.compile(r"[A-Za-z0-9.-]+(?::\d{1,5})?|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?")


@dataclass(frozen=True, kw_only=True)
class WebConfig:
    """How the pages are served.

    Attributes:
        home: The home as commands name it, shown on pages.
        folder: The folder of a local home, which also has runs, jobs, plans and towers; empty for a home elsewhere.
        host: The address to listen at. One that other machines reach needs a token or a header of an identity proxy.
        port: The port; 0: any free one.
        allow_changes: Whether pages may evict, restore and release; otherwise they only show.
        token: The token that a browser presents; empty: a random one, printed at the start.
        user_header: The header in which an identity proxy names the user; requests without it are refused.
        allowed_hosts: Further names by which browsers reach the pages, as in the header ``Host``.
        find_job_place: Finds the files of a fleet's job.
    """

    home: str
    folder: str = ""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    allow_changes: bool = False
    token: str = ""
    user_header: str = ""
    allowed_hosts: tuple[str, ...] = ()
    find_job_place: FindPlace = field(default=lambda stored: JobPlace(), repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises :class:`InputError` for an invalid value, and for an open address without a token or a header."""
        if not 0 <= self.port < 65536:
            raise InputError("the port must be 0 to 65535", where="--port", value=self.port)
        if self.token and (len(self.token) < LEAST_TOKEN or not (self.token.isascii() and self.token.isprintable())):
            raise InputError(f"the token must be {LEAST_TOKEN} or more printable characters of ASCII", where="--token-file",
                             value=f"{len(self.token)} characters")  # fmt: skip
        if self.user_header and not _HEADER.fullmatch(self.user_header):
            raise InputError("the header must be a name of HTTP", where="--user-header", value=self.user_header)
        for name in self.allowed_hosts:
            if not _HOST.fullmatch(name):
                raise InputError("an allowed host must be a name, and a port if it has one", where="--allowed-host", value=name,
                                 allowed="such as headrace.example.com")  # fmt: skip
        if not self.is_local and not (self.token or self.user_header):
            raise InputError("pages that other machines reach must have a token or an identity proxy", where="--host", value=self.host,
                             allowed="--token-file FILE, or --user-header NAME behind a proxy", next_step="leave --host out to serve this machine alone")  # fmt: skip

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the address."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def hosts(self, port: int) -> frozenset[str]:
        """The values of the header ``Host`` that are served at this port: a name of another site that resolves to this machine is none of them."""
        own = {"localhost", "127.0.0.1", "[::1]", f"[{self.host}]" if ":" in self.host else self.host}
        return frozenset({f"{name}:{port}" for name in own} | ({*own} if port == 80 else set()) | {*self.allowed_hosts})
