"""What every process says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version

from transforms.metrics.declarations import gauge
from transforms.metrics.families import Family, by_labels

INFO = gauge("headrace_process_info", "1, with what the process is.", "role", "name", "run", "release")


@dataclass(frozen=True, slots=True)
class Process:
    """What a process is.

    Attributes:
        role: its kind, the second word of its metrics' names.
        name: among the processes of its kind.
        run: the folder of its training run; "" without one.
    """

    role: str
    name: str = ""
    run: str = ""

    @property
    def labels(self) -> Mapping[str, str]:
        """By the names of labels."""
        return asdict(self)

    def families(self) -> tuple[Family, ...]:
        """:data:`INFO` of this process."""
        return (by_labels(INFO, [((*self.labels.values(), version("headrace")), 1.0)]),)
