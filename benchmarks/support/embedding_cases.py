"""Batches of embedding lookups that several systems run. Needs numpy alone: it is imported in other environments, too."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

RATE, START, EPSILON = 0.01, 0.1, 1e-8
_TINY = "nvidia_synthetic_v3_tiny.json"


@dataclass(frozen=True, slots=True)
class Case:
    """Tables and one batch.

    Attributes:
        tables: (rows, columns) of each table.
        inputs: (table, ids an event) of each input; a table may have several.
        events: events of a batch.
        skew: the exponent of the ids' power law.
    """

    name: str
    tables: tuple[tuple[int, int], ...]
    inputs: tuple[tuple[int, int], ...]
    events: int
    skew: float

    @property
    def width(self) -> int:
        """Columns of the activations."""
        return sum(self.tables[table][1] for table, _ in self.inputs)

    def ids(self) -> list[Array]:
        """Of each input, int64 ids, event after event."""
        rng = np.random.default_rng(7)
        return [
            ((rng.zipf(self.skew, self.events * valency) - 1) % self.tables[table][0]).astype(np.int64)
            for table, valency in self.inputs
        ]

    def gradients(self) -> Array:
        """Of the loss by the activations, float32 [events, width]."""
        return np.random.default_rng(8).standard_normal((self.events, self.width), np.float32)

    def moved_bytes(self) -> tuple[int, int]:
        """The least that a lookup, and a lookup with its update, must move to and from memory.

        Rows are counted once a batch, activations and gradients once, a row's update as a read and a write.
        """
        rows: dict[int, list[Array]] = {}
        for (table, _), ids in zip(self.inputs, self.ids(), strict=True):
            rows.setdefault(table, []).append(ids)
        distinct = sum(len(np.unique(np.concatenate(parts))) * self.tables[t][1] * 4 for t, parts in rows.items())
        ids = sum(8 * self.events * valency for _, valency in self.inputs)
        activations = 4 * self.events * self.width
        return distinct + activations + ids, 2 * (distinct + activations + ids) + distinct


def cases(tables_folder: str) -> dict[str, Case]:
    """The cases by name; that of published tables only where its file is in the folder."""
    found = [
        Case("one-hot", ((100_000, 64),) * 26, tuple((t, 1) for t in range(26)), 4096, 1.2),
        Case("valency 30", ((100_000, 64),) * 26, tuple((t, 30) for t in range(26)), 4096, 1.2),
    ]
    published = Path(tables_folder) / _TINY
    if tables_folder and published.is_file():
        document = json.loads(published.read_text())
        tables = tuple((int(one["rows"]), int(one["dim"])) for one in document["tables"])
        inputs = tuple((t, int(n)) for t, one in enumerate(document["tables"]) for n in one["inputs"])
        found.append(Case("NVIDIA tiny", tables, inputs, 4096, 1.05))
    return {case.name: case for case in found}


class Runner(Protocol):
    """One system that runs a case. The first :meth:`both` is with all weights at ``START``."""

    def lookup(self) -> Array:
        """The activations, float32 [events, width]."""

    def both(self) -> None:
        """A lookup, and one update by the case's gradients."""


def serve(build: Callable[[Case, int], Runner]) -> None:
    """Answer a benchmark on the standard streams: ``{"case", "threads", "tables"}``, then ``{"repeats"}`` as often as it likes, a line each."""
    first = json.loads(sys.stdin.readline())
    runner = build(cases(first["tables"])[first["case"]], first["threads"])
    runner.both()
    values = np.asarray(runner.lookup(), np.float64)
    _answer({"sum": float(values.sum()), "squares": float((values * values).sum())})
    for line in sys.stdin:
        repeats = json.loads(line)["repeats"]
        lookups, boths = [], []
        for _ in range(repeats):
            began = time.perf_counter()
            runner.lookup()
            lookups.append(time.perf_counter() - began)
        for _ in range(repeats):
            began = time.perf_counter()
            runner.both()
            boths.append(time.perf_counter() - began)
        _answer({"lookup_secs": lookups, "both_secs": boths})


def _answer(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)
