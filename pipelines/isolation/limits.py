"""The limits of a child process, and the memory of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from transforms.errors import InputError

#: The memory of a process with Arrow and the kernels loaded.
LEAST_MEMORY_BYTES = 2**28
#: The rest is for the parent, the system and its caches of files.
_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class IsolationLimits:
    """The limits of one child process.

    Attributes:
        memory_bytes: Its private memory, including swap; 0 means its share of the machine.
        stall_secs: The time of one step of a plan.
    """

    memory_bytes: int = 0
    stall_secs: float = 300.0

    def __post_init__(self) -> None:
        if self.memory_bytes and self.memory_bytes < LEAST_MEMORY_BYTES:
            raise InputError("the memory limit must be large enough for a process", where="memory limit",
                             value=f"{self.memory_bytes / 1e6:g} MB",
                             allowed=f"{LEAST_MEMORY_BYTES / 1e6:.0f} MB or more, or 0 for a share of the machine")  # fmt: skip
        if not 0 < self.stall_secs < float("inf"):
            raise InputError(
                "the stall limit must be positive and finite",
                where="stall seconds",
                value=self.stall_secs,
                allowed="seconds, more than 0",
            )

    def on_this_machine(self, processes: int) -> IsolationLimits:
        """The limits with 0 replaced by the share of one of ``processes`` concurrent children."""
        if self.memory_bytes:
            return self
        share = int(machine_memory_bytes() * _SHARE / max(processes, 1))
        return replace(self, memory_bytes=max(share, LEAST_MEMORY_BYTES))


def machine_memory_bytes(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """The memory of this machine, or of this process's container if that is less."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *_limits(cgroups, own)])


def _limits(cgroups: Path, own: Path) -> Iterable[int]:
    """The limits of this process's control group and of all its parents."""
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
                continue  # another version of control groups, or a level without a limit
            if text.isdigit():
                yield int(text)
