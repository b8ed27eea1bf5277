"""The metrics of the TensorFlow server of one machine of a slice: what can be known without asking TensorFlow, which has no figures of its server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from transforms.metrics.declarations import gauge
from transforms.metrics.families import Family, single

CLIENTS = gauge("headrace_tpu_server_clients", "Connections to the server: of the host, and of the other machines of the slice; absent where /proc is.")  # fmt: skip
SERVING = gauge("headrace_tpu_server_serving", "1 while the server runs programs, 0 before it has taken its port.")
LEAVING = gauge("headrace_tpu_server_leaving", "1 once the machine was terminated: the server goes on so that the host can commit.")  # fmt: skip
METRICS = (CLIENTS, SERVING, LEAVING)

_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_ESTABLISHED = "01"


def _system_tables() -> tuple[str, ...]:
    """The kernel's tables of this machine's connections; none where it has no such files."""
    return tuple(Path(one).read_text("ascii") for one in _TABLES if Path(one).exists())


@dataclass(slots=True)
class SliceMetrics:
    """What a server is doing; the server sets the attributes.

    Attributes:
        port: where it serves.
        is_serving: whether it has its port.
        is_leaving: whether it was terminated.
        tables: reads the kernel's tables of connections.
    """

    port: int
    is_serving: bool = False
    is_leaving: bool = False
    tables: Callable[[], Iterable[str]] = field(default=_system_tables, repr=False)

    def families(self) -> tuple[Family, ...]:
        """The figures at this moment."""
        connections = tuple(self.tables())
        clients = (single(CLIENTS, sum(clients_of(one, self.port) for one in connections)),) if connections else ()
        return (*clients, single(SERVING, float(self.is_serving)), single(LEAVING, float(self.is_leaving)))


def clients_of(connections: str, port: int) -> int:
    """Established connections to a port of this machine, in the text of one of the kernel's tables. Pure."""
    found = 0
    for line in connections.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 3 and fields[3] == _ESTABLISHED and fields[1].rpartition(":")[2] == f"{port:04X}":
            found += 1
    return found
