"""Where a child says what it is doing: one number in memory that it shares with its parent.

Writing it is one store, so that a plan of a thousand steps costs nothing for it, and the parent can read it while the
child is stuck in C code.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass
from enum import IntEnum

BOARD_BYTES = 8
_BITS = 20
_MASK = (1 << _BITS) - 1


class Phase(IntEnum):
    """What a child is at. Only what the components themselves do is held to a time."""

    IDLE = 0
    READING = 1
    COMPILING = 2
    RUNNING = 3
    #: Machine code is made or loaded: once on a machine that takes long, and is no component's fault.
    LOADING = 4
    WRITING = 5


@dataclass(frozen=True, slots=True)
class Place:
    """``step``: position in the plan. ``alone``: which of the components the plan is of, None for all together."""

    phase: Phase = Phase.IDLE
    step: int = 0
    alone: int | None = None

    @property
    def is_timed(self) -> bool:
        """Whether not leaving this place for long is a stall. Reading and writing wait for disks and networks."""
        return self.phase in (Phase.COMPILING, Phase.RUNNING)


class StepBoard:
    """The number, and both sides' view of it: ``entry`` changes whenever the child goes on."""

    def __init__(self, memory: mmap.mmap | None = None) -> None:
        self._memory = memory
        self._number = memoryview(memory if memory is not None else bytearray(BOARD_BYTES)).cast("q")
        self._serial = 0
        self._alone = 0

    @classmethod
    def of(cls, fd: int) -> StepBoard:
        """The board in an open file of :data:`BOARD_BYTES`; the file may be closed afterwards."""
        return cls(mmap.mmap(fd, BOARD_BYTES))

    def at(self, phase: Phase, step: int = 0) -> None:
        """The child enters a place."""
        self._serial = (self._serial + 1) & _MASK
        self._number[0] = (self._serial << 43) | (phase << 40) | (self._alone << _BITS) | min(step, _MASK)

    def step(self, position: int) -> None:
        """The child enters a step of its plan."""
        self.at(Phase.RUNNING, position)

    def alone(self, which: int | None) -> None:
        """From now on plans are of this component only, or of all."""
        self._alone = 0 if which is None else which + 1

    @property
    def entry(self) -> int:
        """The number itself."""
        return self._number[0]

    @property
    def place(self) -> Place:
        """What the number says."""
        number = self.entry
        alone = (number >> _BITS) & _MASK
        return Place(Phase((number >> 40) & 7), number & _MASK, alone - 1 if alone else None)

    def close(self) -> None:
        """Let the shared memory go."""
        self._number.release()
        if self._memory is not None:
            self._memory.close()


def new_board_file() -> int:
    """A file without a name, of the size of a board, open for both sides; the caller closes it."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("headrace-board")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, BOARD_BYTES)
    return fd
