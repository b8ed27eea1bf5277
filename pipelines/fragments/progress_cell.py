"""The step that a child process is at: one integer in memory that it shares with its parent.

Writing it is one store, which costs nothing in a plan of a thousand steps, and the parent can read it while the child is
stuck in C code.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass
from enum import IntEnum

CELL_BYTES = 8
_BITS = 20
_MASK = (1 << _BITS) - 1


class Phase(IntEnum):
    """What a child does. Only the components' own work, compiling and running, has a time limit."""

    IDLE = 0
    READING = 1
    COMPILING = 2
    RUNNING = 3
    #: Machine code is generated or loaded, which is slow once per machine and no component's fault.
    LOADING = 4
    WRITING = 5


@dataclass(frozen=True, slots=True)
class Position:
    """Where a child is in its work.

    Attributes:
        phase: What it does.
        step: The number of the step in the plan.
        single_component: The one component of the plan; None for a plan of all components.
    """

    phase: Phase = Phase.IDLE
    step: int = 0
    single_component: int | None = None

    @property
    def is_timed(self) -> bool:
        """Whether the time limit applies. Reading and writing wait for disks and networks."""
        return self.phase in (Phase.COMPILING, Phase.RUNNING)


class ProgressCell:
    """A child's position as an integer: the child writes it, the parent reads it."""

    def __init__(self, memory: mmap.mmap | None = None) -> None:
        self._memory = memory
        self._number = memoryview(memory if memory is not None else bytearray(CELL_BYTES)).cast("q")
        self._serial = 0
        self._component = 0

    @classmethod
    def open(cls, fd: int) -> ProgressCell:
        """The cell in an open file of :data:`CELL_BYTES`; the file may be closed afterwards."""
        return cls(mmap.mmap(fd, CELL_BYTES))

    def enter(self, phase: Phase, step: int = 0) -> None:
        """Write a position."""
        self._serial = (self._serial + 1) & _MASK
        self._number[0] = (self._serial << 43) | (phase << 40) | (self._component << _BITS) | min(step, _MASK)

    def enter_step(self, step: int) -> None:
        """Write the number of the running step."""
        self.enter(Phase.RUNNING, step)

    def select_component(self, which: int | None) -> None:
        """Set the one component of the next plans; None for all."""
        self._component = 0 if which is None else which + 1

    @property
    def value(self) -> int:
        """The integer. Every write changes it, also one of the same position."""
        return self._number[0]

    @property
    def position(self) -> Position:
        """The position last written."""
        value = self.value
        component = (value >> _BITS) & _MASK
        return Position(Phase((value >> 40) & 7), value & _MASK, component - 1 if component else None)

    def close(self) -> None:
        """Release the shared memory."""
        self._number.release()
        if self._memory is not None:
            self._memory.close()


def new_cell_file() -> int:
    """Open an unnamed file for a cell, shared by both processes; the caller closes it."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("headrace-progress")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.write(
            fd, bytes(CELL_BYTES)
        )  # a file that is only made longer may have no space: its mapping would kill the child
    except OSError:
        os.close(fd)
        raise
    return fd
