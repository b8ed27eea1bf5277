"""The tables of a model on a slice: how they are stacked, and the memory that they take. Needs no environment but the trainer's."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.tables.spec import TableSpec
from trainer.tables.tpu.placement import Placement
from trainer.tables.tpu.planned_strategy import planned_strategy
from trainer.tables.tpu.sparse_core_engine import SparseCoreEngine
from trainer.tpu_check.checked_model import CheckedModel
from trainer.tpu_check.devices import Devices

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table in a stack; ``padded_rows`` and ``padded_dim``: with the padding of SparseCore."""

    name: str
    rows: int
    dim: int
    padded_rows: int
    padded_dim: int


@dataclass(frozen=True, slots=True)
class Stack:
    """Tables that are one array of each device, or one table that each device has whole.

    Attributes:
        name: TensorFlow's, which limits of SparseCore name.
        tables: in it.
        optimizer: its name.
        slots: arrays of its size that the optimizer keeps beside the weights.
        device_rows: rows on each device.
        device_bytes: of weights and slots, on each device.
        max_ids: ids that one SparseCore may request from another in a step; 0 for a replicated table, of which none are requested.
        max_unique_ids: distinct ones.
        is_replicated: whether each device has all rows.
    """

    name: str
    tables: tuple[TableRow, ...]
    optimizer: str
    slots: int
    device_rows: int
    device_bytes: int
    max_ids: int
    max_unique_ids: int
    is_replicated: bool = False


def stacks_of(model: CheckedModel, devices: Devices) -> tuple[Stack, ...]:
    """The stacks of a model's tables. Raises the errors of :class:`SparseCoreEngine`. Imports TensorFlow."""
    with planned_strategy(devices.planned).scope():
        engine = SparseCoreEngine(
            model.features, seed=0, events_per_replica=model.events_per_replica, settings=model.settings
        )
    places, whole = engine.spread_places(), engine.replicated.places()
    return tuple(
        _whole_table(tables[0])
        if tables[0].name in whole
        else _stack(engine, [places[one.name] for one in tables], devices)
        for tables in engine.stacks()
    )


def _whole_table(table: TableSpec) -> Stack:
    """A replicated table."""
    arrays = 1 + len(table.optimizer.slots)
    return Stack(
        name=table.name,
        tables=(TableRow(table.name, table.vocabulary_size, table.dim, table.vocabulary_size, table.dim),),
        optimizer=type(table.optimizer).__name__,
        slots=len(table.optimizer.slots),
        device_rows=table.vocabulary_size,
        device_bytes=table.vocabulary_size * table.dim * arrays * _FLOAT_BYTES,
        max_ids=0,
        max_unique_ids=0,
        is_replicated=True,
    )


def _stack(engine: SparseCoreEngine, places: list[Placement], devices: Devices) -> Stack:
    (optimizer,) = {one.optimizer for one in engine.tables if one.name == places[0].table}
    name, rows = places[0].stack, places[0].shard_rows * devices.sparse_cores
    arrays = 1 + len(optimizer.slots)
    return Stack(
        name=name,
        tables=tuple(TableRow(one.table, one.rows, one.dim, one.padded_rows, one.padded_dim) for one in places),
        optimizer=type(optimizer).__name__,
        slots=len(optimizer.slots),
        device_rows=rows,
        device_bytes=rows * places[0].padded_dim * arrays * _FLOAT_BYTES,
        max_ids=engine.settings.max_ids(name),
        max_unique_ids=engine.settings.max_unique_ids(name),
    )
