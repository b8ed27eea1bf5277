"""The least that a step with tables on servers does: its compiled loops, one call of each, and its bytes over sockets without frames.

The loops are those that find, combine and sum the rows of a batch at the client, and read, keep and update them at the servers. Their arguments are
prepared once, so that no Python but the call itself is counted.
"""

from __future__ import annotations

import os
import resource
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.piped_processes import PipedProcesses
from trainer.tables.batches import IdBatch
from trainer.tables.kernels import gradients as gradient_kernels
from trainer.tables.kernels import undo_kernels
from trainer.tables.kernels.importance import NO_IMPORTANCE
from trainer.tables.kernels.layout import Bags, TableLayout, TableValues, feature_layout, learning_rates
from trainer.tables.kernels.lookup import combine_bags
from trainer.tables.kernels.memory import LINE_FLOATS, PrivateMemory, SharedMemory, aligned
from trainer.tables.kernels.row_parts import read_weights
from trainer.tables.kernels.threads import Team
from trainer.tables.routes.partitioned import request_kernels
from trainer.tables.routes.partitioned.requests import RequestMaker, asked_layout
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers.placed_rows import place_bags, places_of
from trainer.tables.routes.servers.stacked_plan import stacked_plan, width_order
from trainer.tables.spec import FeatureSpec
from trainer.tables.stores.dense.dense_store import DenseStore, one_event
from trainer.wire.frames import HEADER_BYTES

Array = np.ndarray[Any, np.dtype[Any]]
_NO_SHARES, _NO_LOOKUPS = np.zeros(0, np.float32), np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class MessageBytes:
    """The bytes of the messages of a step between a client and one server: a fetch, its answer, an update, its acknowledgement."""

    fetch: int
    answer: int
    update: int
    done: int = HEADER_BYTES


class StepKernels:
    """The calls of some batches of ``features`` on ``servers``.

    Args:
        folder: of the rows of servers, as theirs; None: they are in memory of this process.

    Attributes:
        client: of the client.
        servers: of all servers, without the undo log.
        undo: those of the undo log, which servers with a folder write.
        messages: of each server.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], batches: Sequence[IdBatch], servers: int, folder: Path | None = None
    ) -> None:
        tables = tuple(one.table for one in features)
        self._features, self._stacked = features, tuple(tables[t] for t in width_order(tables))
        self._parts = TableParts(self._stacked, servers, stacked_plan(self._stacked, servers))
        self._stores = [self._store(server, folder) for server in range(servers)]
        self.client: list[Callable[[], object]] = []
        self.servers: list[Callable[[], object]] = []
        self.undo: list[Callable[[], object]] = []
        self.messages: list[MessageBytes] = []
        for batch in batches:
            self._add(batch)

    def _store(self, server: int, folder: Path | None) -> DenseStore:
        own = None if folder is None else folder / f"kernels-{server}"
        if own is not None:
            own.mkdir(exist_ok=True)
        memory = PrivateMemory() if own is None else SharedMemory(own)
        return DenseStore([part.shard(server)[0] for part in self._parts.parts], seed=1, threads=1, memory=memory)

    def _add(self, batch: IdBatch) -> None:
        features, stacked, parts = self._features, self._stacked, self._parts
        of_features = feature_layout(features, stacked)
        layout, width = asked_layout(of_features, stacked, 1, ()), sum(one.width for one in features)
        requests = RequestMaker(features, of_features, layout, parts=parts, core=0, team=Team(1)).make(batch)
        places = places_of(requests.reads.counts, parts.layout.dims)
        placed = place_bags(requests, places, of_features.table, parts.layout.table)
        at_zero = np.zeros_like(layout.weight_base)
        layout_of_places = layout._replace(row_base=at_zero, weight_base=at_zero)
        weights, sums = (_floats(places.floats) for _ in range(2))
        values = TableValues(weights, _NO_SHARES, np.ones(places.positions, np.uint8))
        gradients, out = np.zeros(batch.rows * width, np.float32), np.zeros(batch.rows * width, np.float32)
        slots, every = _slots_of(batch, of_features.table, len(stacked)), np.arange(len(stacked))
        shape = requests.reads.counts.shape
        ends = np.cumsum(requests.reads.counts.ravel()).reshape(shape) - requests.reads.counts
        own = parts.layout, parts.readers(0), False
        self.client += [
            partial(request_kernels.find_slots, every, batch.ids, batch.offsets, of_features, layout, slots),
            partial(request_kernels.count_by_owner, slots, *own, np.zeros(shape, np.int64), np.zeros(shape, np.int64)),
            lambda: request_kernels.group_by_owner(slots, *own, ends.copy(), requests.reads.rows, requests.reads.places),
            partial(combine_bags, 0, batch.rows, batch.rows, placed, of_features, layout_of_places, values, out, width, False),
            partial(gradient_kernels.sum_positions, every, placed, of_features, layout_of_places, gradients, width, sums),
        ]  # fmt: skip
        for server, store in enumerate(self._stores):
            own_rows = requests.reads.rows[requests.reads.of_owner(server)].copy()
            self._add_server(store, own_rows, requests.reads.counts[server])

    def _add_server(self, store: DenseStore, rows: Array, counts: Array) -> None:
        of_rows, layout, values = feature_layout(store.features, store.tables), store.layout, store.values
        event = one_event(rows, counts)
        bags = Bags(event.ids, event.offsets, _NO_SHARES)
        floats = int((counts * layout.dims).sum())
        used = np.flatnonzero(counts)
        answer, gradients = _floats(floats), np.zeros(floats, np.float32)
        starts = np.stack([event.offsets[:, 0], event.offsets[:, 1]], axis=1)
        entries = gradient_kernels.Entries(np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64), np.zeros(len(rows), np.float32), _NO_LOOKUPS, starts)  # fmt: skip
        most = int(counts.max())
        scratch = gradient_kernels.Scratch(np.zeros(4 << most.bit_length(), np.int32), np.zeros(most, np.int64), _floats(most * int(layout.dims.max())), _NO_LOOKUPS)  # fmt: skip
        columns = np.cumsum(counts * layout.dims) - counts * layout.dims
        in_order = of_rows._replace(column=columns, sequence=np.full(len(counts), 1 << 62))
        buckets = np.stack([used, np.zeros_like(used)], axis=1)
        self.servers += [
            partial(read_weights, bags, layout, values, answer),
            partial(gradient_kernels.are_finite, gradients, 0, floats),
            partial(gradient_kernels.list_entries, used, bags, _NO_LOOKUPS, in_order, layout, 0, np.zeros(len(counts), np.int64), entries),
            partial(gradient_kernels.update_buckets, buckets, entries, gradients, layout, learning_rates(store.tables), values, scratch,
                    np.zeros(len(counts), np.int64), NO_IMPORTANCE),
        ]  # fmt: skip
        log = np.zeros(_log_numbers(counts, layout), np.uint32)
        self.undo.append(
            partial(undo_kernels.keep_rows, bags, of_rows.table, layout, values, log, log.view(np.float32), 0, 0)
        )
        head = HEADER_BYTES + 8 * len(counts)
        if len(self.messages) < len(self._stores):  # those of the first batch
            update = head + 4 * len(counts) + 4 * len(rows) + 4 * floats
            self.messages.append(MessageBytes(head + 4 * len(rows), HEADER_BYTES + 4 * floats, update))


def _floats(size: int) -> Array:
    return aligned(np.zeros(size + LINE_FLOATS, np.float32), size)


def _log_numbers(counts: Array, layout: TableLayout) -> int:
    widths = layout.dims + layout.slot_dims + 3 * undo_kernels.ITEM_HEAD + 1
    return int((counts * widths).sum()) + 3 * undo_kernels.HEAD * len(counts)


def _slots_of(batch: IdBatch, table_of: Array, tables: int) -> request_kernels.Slots:
    most = np.bincount(table_of, batch.offsets[:, -1] - batch.offsets[:, 0], tables).astype(np.int64)
    total = int(most.sum())
    return request_kernels.Slots(
        np.concatenate([[0], np.cumsum(most)]), np.empty(total, np.int64), np.empty(total, np.int32), np.zeros(tables, np.int64),
        np.zeros(len(batch.ids), np.int64), np.empty(0, np.int32),
    )  # fmt: skip


def secs_of_calls(calls: Sequence[Callable[[], object]], batches: int, rounds: int = 20) -> float:
    """The CPU seconds that the calls of one of ``batches`` take, in the median of rounds over all of them."""
    found = []
    for _ in range(rounds):
        before = time.process_time()
        for call in calls:
            call()
        found.append((time.process_time() - before) / batches)
    return statistics.median(found)


def _answer(number: int, pipe: Connection) -> None:
    """A server that takes messages and answers by as many bytes as its client says."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        pipe.send(listening.getsockname())
        stream, _ = listening.accept()
    sizes: MessageBytes = pipe.recv()[number]
    fetch, update, answer, done = (
        bytearray(sizes.fetch),
        bytearray(sizes.update),
        bytes(sizes.answer),
        bytes(sizes.done),
    )
    with stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while steps := pipe.recv():
            for _ in range(steps):
                stream.recv_into(fetch, len(fetch), socket.MSG_WAITALL)
                stream.sendall(answer)
                stream.recv_into(update, len(update), socket.MSG_WAITALL)
                stream.sendall(done)
            used = resource.getrusage(resource.RUSAGE_SELF)
            pipe.send(used.ru_utime + used.ru_stime)


def secs_of_sockets(messages: Sequence[MessageBytes], steps: int) -> float:
    """The CPU seconds of a step's bytes, client and servers together: blocking sockets, one thread a process."""
    with PipedProcesses(_answer, len(messages), os.environ) as servers:
        streams = [socket.create_connection(address) for address in servers.receive()]
        servers.send(messages)
        for stream in streams:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = [bytearray(one.answer) for one in messages]
        requests = [(bytes(one.fetch), bytes(one.update), bytearray(one.done)) for one in messages]
        used: list[float] = []
        for count in (10, steps):
            before = time.process_time()
            servers.send(count)
            for _ in range(count):
                for stream, (fetch, _, _) in zip(streams, requests, strict=True):
                    stream.sendall(fetch)
                for stream, answer in zip(streams, answers, strict=True):
                    stream.recv_into(answer, len(answer), socket.MSG_WAITALL)
                for stream, (_, update, _) in zip(streams, requests, strict=True):
                    stream.sendall(update)
                for stream, (_, _, done) in zip(streams, requests, strict=True):
                    stream.recv_into(done, len(done), socket.MSG_WAITALL)
            own = time.process_time() - before
            used.append(sum(servers.receive()))
        for stream in streams:
            stream.close()
    return (own + used[1] - used[0]) / steps
