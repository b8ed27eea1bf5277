"""A model of any number of parameters on simulated servers: its plan, the requests of a batch, and a commit, by the code of training.

A simulated server reads its messages and answers as many values as a server would, and holds no rows. The manifests of its part of a commit name
files of the size that its rows have, with made-up digests.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from benchmarks.support.harness import peak_bytes
from trainer.checkpoints.commit_manifest import (
    TABLE_COLUMNS,
    CommitFacts,
    CommitManifest,
    array_name,
    check_planned_parts,
    commit_document,
    digest_of,
)
from trainer.checkpoints.host_part import HostPart, Moment, PartName
from trainer.checkpoints.manifest import CheckpointFile
from trainer.checkpoints.part_manifest import PartArray, PartManifest
from trainer.planning.plan import PartitionPlan
from trainer.planning.plan_document import plan_bytes, plan_fingerprint
from trainer.scheduling.orders import Commit
from trainer.tables import FeatureSpec, IdBatch, RowWiseAdagrad, TableSpec
from trainer.tables.batch_checks import find_problem
from trainer.tables.kernels.layout import feature_layout, table_layout
from trainer.tables.kernels.threads import Team
from trainer.tables.routes.partitioned.requests import RequestMaker
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.row_buffers import BatchRows, RowBuffers
from trainer.tables.routes.servers.row_messages import RowNumbers
from trainer.tables.routes.servers.stacked_plan import stacked_plan
from trainer.wire.frames import HEADER_BYTES

Array = np.ndarray[Any, np.dtype[Any]]
_T = TypeVar("_T")

_SKEW, _SLOT_BYTES = 1.2, 4


@dataclass(frozen=True, slots=True)
class CapacityCase:
    """A model: ``tables`` tables of ``dim`` columns with together ``parameters`` weights, and row-wise Adagrad, on ``servers`` servers."""

    parameters: int
    servers: int
    tables: int = 26
    dim: int = 128
    events: int = 4096

    @property
    def rows(self) -> int:
        """The rows of a table."""
        return self.parameters // (self.tables * self.dim)

    def features(self) -> list[FeatureSpec]:
        """One feature a table."""
        return [
            FeatureSpec(f"f{t}", TableSpec(f"t{t}", self.rows, self.dim, RowWiseAdagrad(0.01), "sum"))
            for t in range(self.tables)
        ]

    def batch(self) -> IdBatch:
        """One id for each feature and event: a tenth of them frequent by a power law, the others uniform."""
        draw = np.random.default_rng(2)
        shape = (self.tables, self.events)
        frequent, uniform = draw.zipf(_SKEW, shape) % self.rows, draw.integers(0, self.rows, shape)
        ids = np.where(draw.random(shape) < 0.1, frequent, uniform).astype(np.int64)
        offsets = np.arange(self.tables)[:, None] * self.events + np.arange(self.events + 1)[None]
        return IdBatch(ids.reshape(-1), offsets.astype(np.int64), None, (self.rows,) * self.tables)


@dataclass(frozen=True, slots=True)
class CapacityCosts:
    """What a case costs.

    Attributes:
        plan_secs: to place the tables.
        route_secs: to find the distinct rows of a batch, their servers, and where answers go.
        messages_secs: to make all fetches and updates of a batch.
        server_secs: of a simulated server, to read and check its fetch, the median of all.
        message_bytes, count_bytes: of all fetches and updates of a batch, and of it the counts by table and the headers.
        distinct_rows: of the batch.
        part_secs: to describe the part of one server, on that server.
        commit_secs: to check all parts, and to write and read the commit.
        plan_bytes, manifest_bytes, part_bytes: of the plan's document, of the commit, and of the manifests of all parts.
        memory_bytes: the most memory of the process.
    """

    plan_secs: float
    route_secs: float
    messages_secs: float
    server_secs: float
    message_bytes: int
    count_bytes: int
    distinct_rows: int
    part_secs: float
    commit_secs: float
    plan_bytes: int
    manifest_bytes: int
    part_bytes: int
    memory_bytes: int


def _timed(work: Callable[[], _T], repeats: int = 1) -> tuple[float, _T]:
    """The least seconds of some runs, and what the last one gave."""
    secs = []
    for _ in range(repeats):
        began = time.perf_counter()
        found = work()
        secs.append(time.perf_counter() - began)
    return min(secs), found


class _Client:
    """The routing of an engine on servers, without connections."""

    def __init__(self, case: CapacityCase, plan: PartitionPlan) -> None:
        features = case.features()
        tables = tuple(one.table for one in features)
        self.parts = TableParts(tables, case.servers, plan)
        of_features = feature_layout(features, tables)
        layout, team = table_layout(of_features, tables, 1), Team(1)
        self._maker = RequestMaker(features, of_features, layout, parts=self.parts, core=0, team=team)
        self._buffers = RowBuffers(self.parts, of_features, layout, case.tables * case.dim, team)

    def route(self, batch: IdBatch) -> BatchRows:
        """Where the rows of a batch are."""
        return self._buffers.of_batch(self._maker.make(batch))

    def messages(self, rows: BatchRows) -> tuple[list[list[Any]], int]:
        """The fetches of all servers, and the bytes of these and of updates."""
        reads = rows.requests.reads
        rates = np.zeros(len(self.parts.parts), np.float32)
        fetches, sent_bytes = [], 0
        for server in range(self.parts.cores):
            numbers = RowNumbers(reads.rows[reads.of_owner(server)].astype(np.int32), reads.counts[server])
            fetches.append(messages.write_numbers(numbers))
            update = messages.write_gradients(numbers, rates, rows.space(server))
            sent_bytes += 2 * HEADER_BYTES + sum(map(len, fetches[-1])) + sum(map(len, update))
        return fetches, sent_bytes


def _serve(fetches: Sequence[Sequence[Any]], parts: TableParts) -> float:
    """Read and check the fetch of each server; the median seconds of one."""
    secs = []
    for server, body in enumerate(fetches):
        sizes = np.array([part.shard(server)[0].vocabulary_size for part in parts.parts], np.int64)
        content = b"".join(body)
        began = time.perf_counter()
        numbers = messages.read_numbers(content, len(parts.parts), 0)
        ends = np.cumsum(numbers.counts)
        offsets = np.stack([ends - numbers.counts, ends], axis=1)
        problem, _, _ = find_problem(numbers.rows, offsets, sizes)
        assert problem == 0
        secs.append(time.perf_counter() - began)
    return statistics.median(secs)


def _part(case: CapacityCase, plan: PartitionPlan, fingerprint: str, server: int) -> PartManifest:
    """The part of one server, all of whose rows have changed."""
    part = HostPart(
        attempt=1, epoch=0, rank=server, hosts=case.servers, next_unit=1, step=1, plan="plan", partition=fingerprint
    )
    arrays = []
    for table in plan.tables:
        (own,) = table.slices
        rows = own.rows_of(own.cores.index(server), table.rows)
        for column, row_bytes in zip(TABLE_COLUMNS, (8, 4 * table.columns, _SLOT_BYTES), strict=True):
            file = CheckpointFile(rows * row_bytes, digest_of(f"{table.name} {column} {server}".encode()))
            arrays.append(PartArray(array_name("embedding", column, table.name), file, Moment(1, 1)))
    return PartManifest(part, tuple(arrays))


def _commit(plan: PartitionPlan, parts: Sequence[tuple[PartName, PartManifest]]) -> bytes:
    """Check the parts, and write and read the commit, as the controller of a job does."""
    commit, hosts = Commit(1, 1, 1), [f"server-{rank}" for rank in range(plan.cores)]
    check_planned_parts(commit, hosts, plan, parts)
    facts = CommitFacts({}, "", {}, (), {})
    document = commit_document(commit, hosts, [one.part for _, one in parts], facts, "")
    data = CommitManifest(1, document, tuple(name for name, _ in parts), plan).to_bytes()
    assert CommitManifest.from_bytes(data, "commit").partition == plan
    return data


def _parts(case: CapacityCase, plan: PartitionPlan) -> Iterator[tuple[PartName, PartManifest, int]]:
    fingerprint = plan_fingerprint(plan)
    for server in range(case.servers):
        manifest = _part(case, plan, fingerprint, server)
        data = manifest.to_bytes()
        yield PartName(1, server, digest_of(data)), PartManifest.from_bytes(data, "part"), len(data)


def measure(case: CapacityCase) -> CapacityCosts:
    """The costs of a case."""
    plan_secs, plan = _timed(lambda: stacked_plan([one.table for one in case.features()], case.servers))
    client, batch = _Client(case, plan), case.batch()
    client.messages(client.route(batch))  # compiles
    route_secs, rows = _timed(lambda: client.route(batch), 5)
    messages_secs, (fetches, message_bytes) = _timed(lambda: client.messages(rows), 5)
    _serve(fetches, client.parts)
    server_secs = _serve(fetches, client.parts)
    described = list(_parts(case, plan))
    part_secs, _ = _timed(lambda: _part(case, plan, plan_fingerprint(plan), 0).to_bytes())
    parts = [(name, manifest) for name, manifest, _ in described]
    commit_secs, data = _timed(lambda: _commit(plan, parts))
    return CapacityCosts(
        plan_secs, route_secs, messages_secs, server_secs, message_bytes,
        case.servers * (2 * HEADER_BYTES + 2 * 8 * case.tables), int(rows.requests.reads.counts.sum()),
        part_secs, commit_secs, len(plan_bytes(plan)), len(data), sum(size for *_, size in described), peak_bytes(),
    )  # fmt: skip
