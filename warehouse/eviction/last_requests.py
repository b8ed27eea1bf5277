"""The last requests of data by models, which decide what a budget evicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import Connection, func, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.tables.partitions import partition_range

#: A model's read for training: table, range ``[start, end)`` of partition starts, time; in epoch seconds.
Read = tuple[str, float, float, float]


@dataclass(frozen=True)
class LastRequests:
    """Times of requests by model id: a submission requests the model's whole table, a read a range of one."""

    live: frozenset[int]
    submitted: Mapping[int, float]
    reads: Mapping[int, Sequence[Read]]

    def newest(self, models: Iterable[int], table: str, starts: Sequence[float]) -> float:
        """The last request by one of these models of any of the partitions with these starts, in epoch seconds; 0 without one."""
        return max((self._newest(model, table, starts) for model in models), default=0.0)

    def readers(self, models: Iterable[int]) -> int:
        """The number of live ones among these models."""
        return sum(model in self.live for model in models)

    def _newest(self, model: int, table: str, starts: Sequence[float]) -> float:
        newest = self.submitted.get(model, 0.0)
        for name, first, end, read_at in self.reads.get(model, ()):
            if read_at > newest and name == table and any(first <= at < end for at in starts):
                newest = read_at
        return newest


@lru_cache(maxsize=100_000)
def start_of(partition: str) -> float:
    """The start of a partition in epoch seconds."""
    return partition_range(partition)[0].timestamp()


def read_requests(connection: Connection) -> LastRequests:
    """All requests so far; of reads of the same range the newest."""
    models, asked, reads = schema.models.c, schema.submissions.c, schema.reads.c
    live = frozenset(connection.execute(select(models.id).where(models.live.is_(True))).scalars())
    newest = select(asked.model, func.max(asked.submitted_at)).group_by(asked.model)
    submitted = {model: float(at) for model, at in connection.execute(newest)}
    ranges = (reads.model, reads.table_name, reads.start_at, reads.end_at)
    by_model: defaultdict[int, list[Read]] = defaultdict(list)
    for model, table, start, end, at in connection.execute(select(*ranges, func.max(reads.read_at)).group_by(*ranges)):
        first, last = (float("-inf") if start is None else start), (float("inf") if end is None else end)
        by_model[model].append((table, first, last, float(at)))
    return LastRequests(live, submitted, by_model)


def models_having(connection: Connection, fingerprints: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The model versions, by id, that have each component as an input or inside one."""
    inputs, parts = schema.model_inputs.c, schema.component_subgraphs.c
    query = select(parts.subgraph, inputs.model).join(schema.model_inputs, inputs.fingerprint == parts.fingerprint)
    found: defaultdict[str, list[int]] = defaultdict(list)
    for chunk in chunks(fingerprints):
        for fingerprint, model in connection.execute(query.where(one_of(connection, parts.subgraph, chunk)).distinct()):
            found[fingerprint].append(model)
    return {fingerprint: tuple(sorted(models)) for fingerprint, models in found.items()}
