"""What every machine of a join job knows: definitions, columns and times, as one document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from transforms.columns.arrow_types import arrow_type
from transforms.joins.columns_read import columns_read, other_columns
from transforms.joins.definition import JoinDefinition
from warehouse.files.rows_by_key import ROW
from warehouse.joins.computation import TIME, Computation, read_events, read_rows
from warehouse.joins.keys import Keys
from warehouse.storage.storage import Storage
from warehouse.tables.table import Fragment

#: The column of an event with the number of its fragment; its row there is in :data:`~warehouse.files.rows_by_key.ROW`.
FRAGMENT = "@fragment"


@dataclass(frozen=True)
class JoinWork:
    """The joined columns of one set of keys, and how the two tables are read.

    Attributes:
        home: The home.
        times: The time columns of the events' table and of the other one.
        range_micros: The first and the last time of rows that events may see.
        buckets: How many buckets of keys there are.
        definitions: The columns by name.
    """

    home: str
    times: tuple[str, str]
    range_micros: tuple[int, int]
    buckets: int
    definitions: Mapping[str, JoinDefinition] = field(hash=False)

    @classmethod
    def of(cls, work: Computation, buckets: int) -> JoinWork:
        """The work of a computation."""
        return cls(work.storage.home, work.times, work.range_micros, buckets, work.definitions)

    def to_json(self) -> str:
        """The work as text."""
        definitions = {name: one.to_document() for name, one in self.definitions.items()}
        return json.dumps([self.home, self.times, self.range_micros, self.buckets, definitions])

    @classmethod
    def from_json(cls, text: str) -> JoinWork:
        """The inverse of :meth:`to_json`."""
        home, times, bounds, buckets, definitions = json.loads(text)
        read = {name: JoinDefinition.from_document(one) for name, one in definitions.items()}
        return cls(home, tuple(times), tuple(bounds), buckets, read)

    @cached_property
    def keys(self) -> Keys:
        """The keys."""
        return Keys(next(iter(self.definitions.values())).keys)

    def events(self, fragment: Fragment, number: int) -> pa.Table:
        """What is read of the events of a fragment, with their places."""
        columns = sorted(frozenset[str]().union(*(columns_read(one)[0] for one in self.definitions.values())))
        found = read_events(Storage(self.home), fragment, columns, self.times[0])
        rows = pa.array(range(found.num_rows), pa.int64())
        return found.append_column(FRAGMENT, pa.repeat(pa.scalar(number, pa.int64()), found.num_rows)).append_column(
            ROW, rows
        )

    def rows(self, fragment: Fragment) -> pa.Table:
        """The rows of a fragment of the other table that events may see."""
        return read_rows(Storage(self.home), fragment, self.other_columns, self.times[1], self.range_micros)

    @cached_property
    def other_columns(self) -> Sequence[str]:
        """The columns of the other table that are read, beside the time."""
        return sorted(frozenset[str]().union(*(columns_read(one)[1] for one in self.definitions.values())))

    def no_rows(self) -> pa.Table:
        """A table of the declared types without a row."""
        types = {
            column.name: arrow_type(column.type) for one in self.definitions.values() for column in other_columns(one)
        }
        fields = [pa.field(name, types.get(name, pa.timestamp("us"))) for name in self.other_columns]
        return pa.schema([*fields, pa.field(TIME, pa.timestamp("us"))]).empty_table()
