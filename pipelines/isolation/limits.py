"""How much memory and time a child process may take, and what this machine has to give."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from transforms.errors import InputError

#: What a process needs that has Arrow and the kernels loaded and computes nothing large.
LEAST_MEMORY_BYTES = 2**28
#: The rest is for the parent, the system and its caches of files.
_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class IsolationLimits:
    """``memory_bytes``: what one child may hold at once, swapped out or not; 0 is its share of the machine it runs on.

    ``stall_secs``: how long one step of a plan may take without ending.
    """

    memory_bytes: int = 0
    stall_secs: float = 300.0

    def __post_init__(self) -> None:
        if self.memory_bytes and self.memory_bytes < LEAST_MEMORY_BYTES:
            raise InputError("a process cannot compute with so little memory", where="memory limit",
                             value=f"{self.memory_bytes / 1e6:g} MB",
                             allowed=f"{LEAST_MEMORY_BYTES / 1e6:.0f} MB or more, or 0 for a share of the machine")  # fmt: skip
        if not 0 < self.stall_secs < float("inf"):
            raise InputError(
                "a step must be given some time",
                where="stall seconds",
                value=self.stall_secs,
                allowed="seconds, more than 0",
            )

    def on_this_machine(self, processes: int) -> IsolationLimits:
        """The limits with 0 replaced by what ``processes`` children at once may each hold here."""
        if self.memory_bytes:
            return self
        share = int(machine_memory_bytes() * _SHARE / max(processes, 1))
        return replace(self, memory_bytes=max(share, LEAST_MEMORY_BYTES))


def machine_memory_bytes(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """The memory of this machine, or of the container this process is in if that is less."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *_limits(cgroups, own)])


def _limits(cgroups: Path, own: Path) -> Iterable[int]:
    """Every limit on the way from the root of control groups to this process's own."""
    folders = [cgroups, cgroups / "memory"]
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []  # a system without control groups
    for line in lines:
        _, controllers, path = line.split(":", 2)
        root = cgroups / "memory" if "memory" in controllers.split(",") else cgroups
        if controllers and root == cgroups:
            continue
        parts = [part for part in path.split("/") if part]
        folders += [root.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    for folder in folders:
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue  # not this version of control groups, or a level that has no limit of its own
            if text.isdigit():
                yield int(text)
