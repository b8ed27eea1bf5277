"""Commits of a run whose tables gain, change and lose rows, and what a server must have of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.trainer.checkpoints.job_states import counts, document, publish_all
from trainer.checkpoints.checkpoint import write_checkpoint
from trainer.checkpoints.host_part import LEDGER
from trainer.checkpoints.local_run import LocalRun
from trainer.checkpoints.read import Checkpoint
from trainer.checkpoints.retention import Retention, apply_retention
from trainer.serving.deltas.served_rows import ServedRows

Array = np.ndarray[Any, np.dtype[Any]]

#: Kind, name and columns of each table.
TABLES = (("embedding", "user", 6), ("embedding", "words", 2), ("linear", "user", 1))


@dataclass(frozen=True)
class History:
    """The commits of a run: after ``epochs`` the run has the arrays ``states[epochs - 1]``."""

    states: tuple[dict[str, Array], ...]

    def checkpoint(self, epochs: int) -> Checkpoint:
        """The commit after so many epochs, of at most four, as one process has it."""
        return Checkpoint("", epochs, document(epochs), {**self.states[epochs - 1], LEDGER: counts(epochs).uneven})

    def commit(self, run: Path, epochs: int, *, keep: int = 9, hosts: int = 0) -> None:
        """Write a commit of one process, or of the parts of ``hosts``."""
        found = self.checkpoint(epochs)
        if hosts:
            publish_all(run, found, hosts, epochs)
            apply_retention(run, Retention(newest=keep), now_secs=0.0)
        else:
            write_checkpoint(run, epochs, found.document, found.arrays, keep=keep)  # type: ignore[arg-type]

    def changed(self, before: int, after: int, kind: str, table: str) -> tuple[set[int], set[int]]:
        """The ids that are new or changed between two commits, bit for bit, and those that are gone."""
        old, new = (self.rows(epochs, kind, table) for epochs in (before, after))
        return {key for key, row in new.items() if old.get(key) != row}, old.keys() - new.keys()

    def rows(self, epochs: int, kind: str, table: str) -> dict[int, bytes]:
        """The weights of each row, as bytes."""
        arrays = self.states[epochs - 1]
        ids, weights = arrays[f"{kind}/rows/{table}"], arrays[f"{kind}/weights/{table}"]
        return {int(key): row.tobytes() for key, row in zip(ids, weights, strict=True)}


def history(seed: int, epochs: int, *, rows: int = 30, most_id: int = 2**62) -> History:
    """Random commits: most rows stay, some change a bit or more, some appear, some vanish; some commits change nothing."""
    draw = np.random.default_rng(seed)
    tables = {name: _fresh(draw, rows, most_id, columns) for name, columns in _columns()}
    states = [_arrays(draw, tables, 1)]
    for epoch in range(2, epochs + 1):
        if draw.random() < 0.85:
            tables = {name: _next(draw, tables[name], most_id, columns) for name, columns in _columns()}
        states.append(_arrays(draw, tables, epoch))
    return History(tuple(states))


def _columns() -> list[tuple[tuple[str, str], int]]:
    return [((kind, table), columns) for kind, table, columns in TABLES]


def _fresh(draw: np.random.Generator, rows: int, most_id: int, columns: int) -> dict[int, Array]:
    count = int(draw.integers(0, rows + 1))
    return {int(key): _row(draw, columns) for key in draw.integers(0, most_id, count)}


def _row(draw: np.random.Generator, columns: int) -> Array:
    return draw.normal(size=columns).astype(np.float32)


def _next(draw: np.random.Generator, rows: dict[int, Array], most_id: int, columns: int) -> dict[int, Array]:
    after = {key: row for key, row in rows.items() if draw.random() < 0.9}
    for key in [key for key in after if draw.random() < 0.3]:
        if draw.random() < 0.5:
            after[key] = _row(draw, columns)
        else:  # one bit, or another sign of zero
            after[key] = after[key].copy()
            after[key].view(np.uint32)[int(draw.integers(columns))] ^= np.uint32(1) << np.uint32(
                draw.choice([0, 22, 31])
            )
    return after | _fresh(draw, 6, most_id, columns)


def _arrays(
    draw: np.random.Generator, tables: Mapping[tuple[str, str], dict[int, Array]], epoch: int
) -> dict[str, Array]:
    found = {
        "dense/weights/000": draw.normal(size=(3, 2)).astype(np.float32),
        "dense/optimizer/000": draw.normal(size=(3, 2)).astype(np.float32),
        "dense/random/000": np.array([epoch], np.int64),
        "dense/moving/000": np.float32(epoch).reshape(()),
    }
    for kind, table, columns in TABLES:
        rows = tables[kind, table]
        ids = np.array(sorted(rows), np.int64)
        found[f"{kind}/rows/{table}"] = ids
        found[f"{kind}/weights/{table}"] = np.array([rows[int(key)] for key in ids], np.float32).reshape(
            len(ids), columns
        )
        found[f"{kind}/slots/{table}"] = draw.random((len(ids), columns)).astype(np.float32)  # they change every epoch
    return found


def run_files(run: Path) -> LocalRun:
    """The checkpoints of a run."""
    return LocalRun(run / "checkpoints")


def served_arrays(state: ServedRows) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """All arrays of a state as values that compare bit by bit."""
    found = {f"dense/{name}": array for name, array in state.dense_arrays().items()}
    for one in state.tables:
        ids, weights = state.table(one.kind, one.table)
        found |= {f"{one.kind}/rows/{one.table}": ids, f"{one.kind}/weights/{one.table}": weights}
    return as_values(found)


def wanted_arrays(arrays: Mapping[str, Array]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """What :func:`served_arrays` is for the arrays of a commit."""
    return as_values({name: one for name, one in arrays.items() if "/slots/" not in name and not name.startswith("dense/optimizer")})  # fmt: skip


def as_values(arrays: Mapping[str, Array]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
