"""Embedding tables as a checkpoint stores them: rows, weights, slots and sections of each, as whole arrays or part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from trainer.checkpoints.commit_manifest import TABLE_COLUMNS, array_name, table_of
from trainer.checkpoints.parted_arrays import ArrayKind, PartedArrays
from trainer.checkpoints.table_sections import section_name, section_of
from trainer.errors import NonFiniteLoss, TornCheckpoint
from trainer.tables.engine import (
    NO_SECTIONS,
    ChangedRows,
    RowSection,
    SavedTables,
    TableSections,
    TablesSnapshot,
    TableState,
)
from trainer.tables.optimizers import slot_width
from transforms.arrays import Array


def own_place(kind: str, table: str) -> tuple[str, str]:
    """The place of a table in an engine of one part of the model."""
    return kind, table


def state_arrays(states: Iterable[tuple[str, str, TableState]]) -> dict[str, Array]:
    """The arrays of tables as a checkpoint stores them, from the part of the model, the name and the state of each."""
    arrays = {}
    for kind, table, state in states:
        arrays.update(_row_arrays(kind, table, state))
        arrays.update(section_arrays(kind, table, state.sections))
    return arrays


def section_arrays(kind: str, table: str, sections: TableSections) -> dict[str, Array]:
    """The arrays of what a table has beside its rows, as a checkpoint stores them."""
    by_rows = (_row_arrays(f"{kind}-{name}", table, one) for name, one in sections.by_rows.items())
    others = {section_name(kind, name, table): array for name, array in sections.arrays.items()}
    return {name: array for own in (*by_rows, others) for name, array in own.items()}


def _row_arrays(kind: str, table: str, state: TableState) -> dict[str, Array]:
    return dict(
        zip(
            (array_name(kind, column, table) for column in TABLE_COLUMNS),
            (state.rows, state.weights, state.slots),
            strict=True,
        )
    )


def saved_states(arrays: Mapping[str, Array], kind: str) -> dict[str, TableState]:
    """The states of one part of the model, the inverse of :func:`state_arrays`. Raises :class:`TornCheckpoint`."""
    sections = saved_sections(arrays, kind)
    rows, weights, slots = (under(arrays, f"{kind}/{part}/") for part in TABLE_COLUMNS)
    if not rows.keys() == weights.keys() == slots.keys():
        raise TornCheckpoint("saved embedding tables must have rows, weights and slots", value=sorted(rows))
    return {name: TableState(rows[name], weights[name], slots[name], sections.get(name, NO_SECTIONS)) for name in rows}


def saved_sections(arrays: Mapping[str, Array], kind: str) -> dict[str, TableSections]:
    """What the tables of one part of the model have beside their rows, the inverse of :func:`section_arrays`. Raises :class:`TornCheckpoint`."""
    by_rows: dict[str, dict[str, dict[str, Array]]] = {}
    others: dict[str, dict[str, Array]] = {}
    for name, array in arrays.items():
        if (of := table_of(name)) is not None and of[0].startswith(f"{kind}-"):
            section, column, table = of[0].removeprefix(f"{kind}-"), *of[1:]
            by_rows.setdefault(table, {}).setdefault(section, {})[column] = array
        elif (found := section_of(name)) is not None and found[0] == kind:
            others.setdefault(found[2], {})[found[1]] = array
    return {
        table: TableSections(
            {section: _section(f"{kind}-{section}", table, found) for section, found in by_rows.get(table, {}).items()},
            others.get(table, {}),
        )
        for table in (*by_rows, *(one for one in others if one not in by_rows))
    }


def _section(kind: str, table: str, found: Mapping[str, Array]) -> TableState:
    """A section by rows from its arrays by their columns."""
    if len(found) < len(TABLE_COLUMNS):
        raise TornCheckpoint("what a table has by rows must have rows, weights and slots", where=f"{kind} table {table}",
                             value=", ".join(found), allowed=", ".join(TABLE_COLUMNS))  # fmt: skip
    rows, weights, slots = (found[column] for column in TABLE_COLUMNS)
    return TableState(rows, weights, slots)


def check_whole(engine: SavedTables, states: Mapping[str, TableState]) -> None:
    """:func:`check_sections` of the saved states of an engine."""
    for t, table in enumerate(engine.tables):
        if table.name in states:
            check_sections(table.name, states[table.name], engine.section_names(t))


def check_sections(table: str, state: TableState, names: Sequence[str]) -> None:
    """Raise :class:`TornCheckpoint` for the saved state of a table without sections of these names."""
    missing = [one for one in names if one not in (*state.sections.by_rows, *state.sections.arrays)]
    if missing:
        raise TornCheckpoint("a saved table must have all its sections", where=f"table {table}", value=f"no {', '.join(missing)}",
                             allowed=", ".join(names), next_step="restore an earlier checkpoint")  # fmt: skip


def parted_tables(
    place_of: Callable[[str], tuple[str, str]], engine: SavedTables, most_bytes: int
) -> list[PartedArrays]:
    """The tables of one engine as they are now; see :meth:`ModelWeights.begin_tables`.

    ``place_of``: from a table's name in the engine to the part of the model that has it, and its name there.
    """
    snapshot = engine.begin_snapshot(most_bytes=most_bytes)
    found = []
    for t, (table, count) in enumerate(zip(engine.tables, snapshot.counts, strict=True)):
        kind, name = place_of(table.name)
        kinds = table_arrays(kind, name, count, table.dim, slot_width(table.optimizer, table.dim))
        found += parted_table(snapshot, t, kinds, kind, name)
    return found


def parted_sections(kind: str, table: str, sections: Mapping[str, RowSection]) -> list[PartedArrays]:
    """What a table has by rows beside its own."""
    return [
        PartedArrays(
            table_arrays(f"{kind}-{name}", table, one.count, one.dim, one.slot_dim),
            ((part.rows, part.weights, part.slots) for part in one.parts()),
        )
        for name, one in sections.items()
    ]


def parted_table(
    snapshot: TablesSnapshot, t: int, kinds: tuple[ArrayKind, ...], kind: str, table: str, *, with_others: bool = True
) -> list[PartedArrays]:
    """A table of a snapshot, and its sections; ``with_others``: also the sections without rows, which are alike on all hosts."""
    sections, count = snapshot.sections(t), snapshot.counts[t]
    beside = tuple(ArrayKind(section_name(kind, one, table), "int64", (count,)) for one in sections.beside)
    found = [PartedArrays((*kinds, *beside), finite_parts(snapshot, t, f"{kind} table {table}"))]
    found += parted_sections(kind, table, sections.by_rows)
    for name, one in sections.arrays.items():
        if not (with_others or one.is_own):
            continue
        array_kind = ArrayKind(section_name(kind, name, table), one.dtype, one.shape)
        found.append(PartedArrays((array_kind,), ((part,) for part in one.parts)))
    return found


def table_arrays(
    kind: str, table: str, count: int, columns: int, slots: int, slice_number: int | None = None
) -> tuple[ArrayKind, ArrayKind, ArrayKind]:
    """The rows, weights and slots of a table with ``count`` saved rows, or of a slice of its columns."""
    rows, weights, slot_values = (array_name(kind, column, table, slice_number) for column in TABLE_COLUMNS)
    return (
        ArrayKind(rows, "int64", (count,)),
        ArrayKind(weights, "float32", (count, columns)),
        ArrayKind(slot_values, "float32", (count, slots)),
    )


def finite_parts(snapshot: TablesSnapshot, t: int, place: str) -> Iterator[tuple[Array, ...]]:
    """The parts of a table of a snapshot. Raises :class:`NonFiniteLoss` for values that are not finite."""
    for part in snapshot.table(t):
        check_finite_values(part, place)
        yield part.rows, part.weights, part.slots, *part.beside


def check_finite_values(part: ChangedRows, place: str) -> None:
    """Raises :class:`NonFiniteLoss` for rows with values that are not finite."""
    if not (np.isfinite(part.weights).all() and np.isfinite(part.slots).all()):
        raise NonFiniteLoss("training diverged: the last step of an epoch left NaN or infinite weights", where=place,
                            next_step="lower the learning rates and train in a fresh run directory; the last checkpoint is intact")  # fmt: skip


def under(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The arrays whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
