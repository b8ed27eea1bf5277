"""Steps of tables of unbounded vocabularies, and a process of each system that makes them; no package but numpy.

A step looks up one id an event of each table, and updates the rows by Adagrad. The ids of all batches and the gradients are in a file, so that all systems
get the same ones. The activations of the last step, which depend on all updates before it, must be equal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np

from benchmarks.support.harness import cpu_secs

Array = np.ndarray[Any, np.dtype[Any]]
_SPREAD, _MOST_ID = 0x9E3779B97F4A7C15, (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class SystemCase:
    """The tables, and what a step reads and updates.

    Attributes:
        tables: each with one id an event.
        events: of a step.
        dim: columns of each table.
        rows: distinct ids of a table, at most.
        skew: the exponent of the power law of ids.
        batches: that are trained again and again.
        rate, accumulator: of Adagrad; rows begin with zeros.
    """

    tables: int
    events: int
    dim: int = 16
    rows: int = 100_000
    skew: float = 1.2
    batches: int = 32
    rate: float = 0.05
    accumulator: float = 0.1

    @property
    def name(self) -> str:
        """As the command line has it."""
        return f"{self.tables}x{self.events}"

    def ids(self) -> Array:
        """Numbers below 2^62, int64 [batches, tables, events]: equal ones for equal ranks of the power law, and others in each table."""
        draw = np.random.default_rng(7)
        ranks = (draw.zipf(self.skew, (self.batches, self.tables, self.events)) - 1) % self.rows
        tables = np.arange(self.tables, dtype=np.uint64)[None, :, None] + np.uint64(1)
        spread = (ranks.astype(np.uint64) + np.uint64(1)) * np.uint64(_SPREAD) + tables * np.uint64(0xD1B54A32D192ED03)
        return (spread & np.uint64(_MOST_ID)).astype(np.int64)

    def gradients(self) -> Array:
        """Of the activations of each step, float32 [events, tables * dim]."""
        draw = np.random.default_rng(8)
        return (0.01 * draw.standard_normal((self.events, self.tables * self.dim))).astype(np.float32)

    def write(self, file: Path) -> None:
        """Write all that a side needs."""
        own = {name: getattr(self, name) for name in self.__dataclass_fields__}
        np.savez(file, ids=self.ids(), gradients=self.gradients(), case=json.dumps(own))


@dataclass(frozen=True, slots=True)
class GivenCase:
    """A case as a side reads it.

    Attributes:
        case: the tables.
        ids, gradients: see :class:`SystemCase`.
    """

    case: SystemCase
    ids: Array
    gradients: Array

    @classmethod
    def read(cls, file: str) -> GivenCase:
        """The case in a file of :meth:`SystemCase.write`."""
        with np.load(file) as found:
            return cls(SystemCase(**json.loads(str(found["case"]))), found["ids"], found["gradients"])


#: Makes the step with a batch of this number; the activations before its update.
MakeStep: TypeAlias = Callable[[int], Array]


def answer_lines(step: MakeStep, batches: int) -> None:
    """Make so many steps for each line of the input, and print what they took and the sums of the last activations."""
    for number in range(2 * batches):  # all rows are there, and all code has run
        step(number % batches)
    print(json.dumps({}), flush=True)
    number = 0
    for line in sys.stdin:
        count, used, began = int(line), cpu_secs(), time.perf_counter()
        for _ in range(count):
            found = step(number % batches)
            number += 1
        secs = time.perf_counter() - began
        sums = {"sum": float(found.sum(dtype=np.float64)), "squares": float(np.square(found, dtype=np.float64).sum())}
        print(json.dumps({"secs": secs / count, "cpu_secs": (cpu_secs() - used) / count, **sums}), flush=True)


class SystemSide:
    """A system in a process of its own, with its servers.

    Args:
        name: as it is printed.
        python: of its environment.
        module: that answers lines.
        arguments: of the module.
    """

    def __init__(self, name: str, python: Path, module: str, arguments: Sequence[str]) -> None:
        self.name = name
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_USE_LEGACY_KERAS": "0",
            "CUDA_VISIBLE_DEVICES": "-1",
        }
        self._process = subprocess.Popen([str(python), "-m", module, *arguments], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True)  # fmt: skip
        self._answer()

    def measure(self, steps: int) -> dict[str, float]:
        """What a step took: ``secs``, and ``cpu_secs`` of all of its processes; sums of its last activations."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith("{"):  # others are messages of libraries
                found: dict[str, float] = json.loads(line)
                return found
        raise SystemExit(f"the side {self.name} ended with status {self._process.wait()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
