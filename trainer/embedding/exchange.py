"""What hosts of one job exchange in a step, as an interface: arrays from each host to each host.

All hosts make the same calls in the same order; a call ends when the arrays of all hosts are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class Exchange(Protocol):
    """An exchange between ``hosts`` hosts, of which this one has ``rank``."""

    @property
    def rank(self) -> int:
        """This host's place among the hosts, from 0 on."""

    @property
    def hosts(self) -> int:
        """The number of hosts."""

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """Send ``parts[r]`` to the host of rank r, and return what each host sent to this one, by rank.

        Received arrays are read-only. Raises an error if another host is lost.
        """


class OneHost:
    """The exchange of a job with one host."""

    rank = 0
    hosts = 1

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """What this host sends to itself."""
        return [parts[0]]
