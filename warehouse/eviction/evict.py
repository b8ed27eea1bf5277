"""Evict memos by a search or by a budget. Only ``gc`` deletes files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from sqlalchemy import Connection, func, select

from transforms.errors import InputError
from transforms.graphs.encoding import digest
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of, storable
from warehouse.config import WarehouseConfig
from warehouse.errors import PlanChanged
from warehouse.eviction.budget import EvictionCandidates, choose_for_budget
from warehouse.eviction.candidates import (
    count_ready,
    places_of,
    ready_bytes,
    ready_memos,
    sum_by_component,
    sum_by_file,
)
from warehouse.eviction.history import record_eviction
from warehouse.eviction.last_requests import models_having, read_requests, start_of
from warehouse.eviction.plan import (
    EvictionPlan,
    EvictionRequest,
    PinnedComponents,
)
from warehouse.eviction.stored_memos import StoredMemos
from warehouse.eviction.unpaid import settle_account, unpaid_memos, unsettled_tables
from warehouse.matching.submit import queue_worthwhile
from warehouse.memos.memos import UNPAID, evict_memos
from warehouse.reading.pins import pin_holders
from warehouse.scheduling.task_states import MemoState
from warehouse.search.components import live_models, live_models_around
from warehouse.search.names import check_names
from warehouse.search.query import ComponentQuery
from warehouse.search.search import matching_fingerprints
from warehouse.tables.merges import merged_parts
from warehouse.warehouse import Warehouse

#: Memos that become tombstones at a time; more if one component has more.
BATCH_MEMOS = 100_000

#: Components whose last requests are read at a time.
_LOOKED_UP = 5_000


def plan_eviction(warehouse: Warehouse, request: EvictionRequest) -> EvictionPlan:
    """Plan what :func:`run_eviction` would do now. Changes nothing.

    Raises what :func:`~warehouse.search.search.search_components` raises for unknown names.
    """
    with warehouse.catalog.read() as connection:
        return _select(connection, warehouse.config, request, warehouse.clock())[0]


def run_eviction(
    warehouse: Warehouse,
    request: EvictionRequest,
    *,
    why: str,
    who: str = "",
    plan: str = "",
    progress: Callable[[int, int], None] = lambda done, memos: None,
) -> EvictionPlan:
    """Evict the ready memos that fulfil a request; returns what was done.

    A tombstone keeps the time, ``why``, the request and ``who``; ``explain`` shows it. :func:`~warehouse.eviction.restore.restore_evicted` undoes it
    until ``gc`` deletes the files. Pinned components and memos that
    are queued or being computed stay. ``plan``: the id of the plan that the eviction must equal; ``progress``: called with
    the memos that are tombstones so far and all of them, from 0 on when the transaction begins again.
    Raises :class:`PlanChanged` if it does not, :class:`InputError` without a reason, and what
    :func:`plan_eviction` raises.
    """
    if not why.strip():
        raise InputError("why must be a reason", where="eviction", value=why)

    def act(connection: Connection) -> EvictionPlan:
        now = warehouse.clock()  # after the wait for other writers, whose pins it is compared with
        planned, tally, chosen = _select(connection, warehouse.config, request, now)
        if plan and plan != planned.id:
            raise PlanChanged("the eviction differs from its plan", where=f"plan {plan}",
                              value=f"{planned.id}: {planned.memos} memos",
                              next_step="run the same command without --yes to see the new plan")  # fmt: skip
        if not planned.memos:
            return replace(planned, done=True)
        tombstone = storable(f"{why.strip()} [{request.text}{f'; by {who}' if who else ''}]")
        number = record_eviction(connection, planned, why=why, who=who, now=now)
        done = 0
        progress(done, planned.memos)
        for batch in _batches(connection, request, tally, chosen):
            files: defaultdict[int, set[str]] = defaultdict(set)
            for file, fingerprint in zip(batch.file.tolist(), batch.fingerprint, strict=True):
                files[file].add(fingerprint)
            memos = dict(zip(batch.memo_key, batch.fingerprint, strict=True))
            evict_memos(connection, memos, files, tombstone, now, eviction=number)
            done += len(batch)
            progress(done, planned.memos)
        return replace(planned, done=True, eviction=number)

    return warehouse.catalog.run(act)


@dataclass
class _OfComponent:
    memos: int = 0
    size_bytes: int = 0
    secs: float = 0.0
    changed_at: float = 0.0


@dataclass
class _OfFile:
    memos: int = 0
    size_bytes: int = 0


@dataclass
class _Tally:
    """Sums of memos; memory grows with components and files only."""

    rows: int = 0
    components: defaultdict[str, _OfComponent] = field(default_factory=lambda: defaultdict(_OfComponent))
    files: defaultdict[int, _OfFile] = field(default_factory=lambda: defaultdict(_OfFile))

    @property
    def id(self) -> str:
        return digest([[name, of.memos, of.size_bytes, of.changed_at] for name, of in sorted(self.components.items())])[
            :12
        ]


def _select(
    connection: Connection, config: WarehouseConfig, request: EvictionRequest, now: float
) -> tuple[EvictionPlan, _Tally, StoredMemos | None]:
    """The plan, its sums, and the chosen memos if there is a budget or only unpaid ones are wanted."""
    check_names(connection, request.query)
    found = sorted(matching_fingerprints(connection, request.query))
    pinned = pin_holders(connection, found, now)
    free = [fingerprint for fingerprint in found if fingerprint not in pinned]
    counted = None if request.query.is_empty and not pinned else free
    live_bytes = select(func.coalesce(func.sum(schema.memo_files.c.live_bytes), 0))
    stored_bytes = int(connection.execute(live_bytes).scalar_one())
    chosen: StoredMemos | None = None
    if request.budget_bytes is not None:
        excess_bytes = stored_bytes - request.budget_bytes
        if excess_bytes < ready_bytes(connection, request, counted):  # otherwise all of them go, in no order
            chosen = choose_for_budget(_candidates(connection, request, free), excess_bytes)
    if request.unpaid:
        chosen = _unpaid(connection, config, request, free, now)
    tally = _summed(connection, request, counted) if chosen is None else _added(chosen)
    return _plan(connection, request, tally, pinned, stored_bytes), tally, chosen


def _summed(connection: Connection, request: EvictionRequest, fingerprints: Sequence[str] | None) -> _Tally:
    tally = _Tally()
    for one in sum_by_component(connection, request, fingerprints):
        tally.rows += one.rows
        tally.components[one.fingerprint] = _OfComponent(one.memos, one.size_bytes, one.secs, one.changed_at)
    for file, memos, size_bytes in sum_by_file(connection, request, fingerprints):
        of = tally.files[file]
        of.memos += memos
        of.size_bytes += size_bytes
    return tally


def _added(memos: StoredMemos) -> _Tally:
    tally = _Tally(rows=int(memos.rows.sum()))
    numbers: dict[str, int] = {}
    place = np.fromiter((numbers.setdefault(name, len(numbers)) for name in memos.fingerprint), np.int64, len(memos))
    size_bytes, changed_at = np.zeros(len(numbers), np.int64), np.zeros(len(numbers))
    np.add.at(size_bytes, place, memos.size_bytes)
    np.maximum.at(changed_at, place, memos.changed_at)
    counts, secs = np.bincount(place), np.bincount(place, memos.secs)
    each = zip(numbers, counts.tolist(), size_bytes.tolist(), secs.tolist(), changed_at.tolist(), strict=True)
    tally.components.update((name, _OfComponent(*sums)) for name, *sums in each)
    files, place = np.unique(memos.file, return_inverse=True)
    size_bytes = np.zeros(len(files), np.int64)
    np.add.at(size_bytes, place, memos.size_bytes)
    counted = zip(files.tolist(), np.bincount(place).tolist(), size_bytes.tolist(), strict=True)
    tally.files.update((file, _OfFile(*sums)) for file, *sums in counted)
    return tally


def _unpaid(
    connection: Connection, config: WarehouseConfig, request: EvictionRequest, fingerprints: Sequence[str], now: float
) -> StoredMemos:
    unpaid = {memo.memo_key for memo in unpaid_memos(connection, config, fingerprints, request.query.table, now)}
    found = ready_memos(connection, request, fingerprints) if unpaid else ()
    return StoredMemos.joined(
        memos.at(np.fromiter((key in unpaid for key in memos.memo_key), np.bool_, len(memos))) for memos in found
    )


@dataclass(frozen=True, slots=True)
class Settled:
    """Memos that were dropped, and memos that were queued, by the prices of a day."""

    dropped: int = 0
    queued: int = 0


def settle_storage(warehouse: Warehouse) -> Settled:
    """Once a day, settle the accounts of the adaptive policy, drop memos that are not worth their storage, queue those that are.

    Without a table of that policy, or on the same day, it costs one or two queries. A process that is killed in between leaves
    the rest to the next day; submissions and new data are not affected.
    """
    now = warehouse.clock()
    with warehouse.catalog.read() as connection:
        tables = unsettled_tables(connection, now)
    dropped = queued = 0
    for table in tables:

        def settle(connection: Connection, table: str = table) -> None:
            settle_account(connection, warehouse.config, table, now)

        warehouse.catalog.run(settle)
        request = EvictionRequest(query=ComponentQuery(table=table), unpaid=True)
        dropped += run_eviction(warehouse, request, why=UNPAID).memos
        queued += queue_worthwhile(warehouse, table)
    return Settled(dropped, queued)


def _candidates(
    connection: Connection, request: EvictionRequest, fingerprints: Sequence[str]
) -> Iterator[EvictionCandidates]:
    requests = read_requests(connection)
    merged = {row: [part.start for part in parts] for row, parts in merged_parts(connection).items()}
    numbers: dict[tuple[int, ...], int] = {(): 0}  # of models: most components share theirs
    newest: dict[tuple[int, int], float] = {}  # by models and fragment
    for chunk in chunks(fingerprints, _LOOKED_UP):
        having = {
            name: numbers.setdefault(models, len(numbers)) for name, models in models_having(connection, chunk).items()
        }
        listed = list(numbers)
        readers = np.array([requests.readers(models) for models in listed], np.int64)
        for memos in ready_memos(connection, request, chunk):
            number = np.fromiter((having.get(name, 0) for name in memos.fingerprint), np.int64, len(memos))
            fragments, place = np.unique(memos.fragment, return_inverse=True)
            asked, each = np.unique(number * len(fragments) + place, return_inverse=True)
            pairs = [(int(one // len(fragments)), int(fragments[one % len(fragments)])) for one in asked]
            new = [pair for pair in pairs if pair not in newest]
            places = places_of(connection, sorted({fragment for _, fragment in new}))
            for models, fragment in new:
                table, partition = places[fragment]
                starts = merged.get(fragment) or (start_of(partition),)
                newest[models, fragment] = requests.newest(listed[models], table, starts)
            requested_at = np.array([newest[pair] for pair in pairs], np.float64)[each]
            yield EvictionCandidates(memos, np.maximum(requested_at, memos.created_at), readers[number])


def _plan(
    connection: Connection, request: EvictionRequest, tally: _Tally, pinned: dict[str, set[str]], stored_bytes: int
) -> EvictionPlan:
    touched = sorted(tally.components)
    around = live_models_around(connection, touched)
    readers = {**around, **live_models(connection, touched)}
    whole = _whole_files(connection, tally)
    jobs = Counter(holder for holders in pinned.values() for holder in holders)
    return EvictionPlan(
        id=tally.id,
        done=False,
        request=request.text,
        components=len(touched),
        memos=sum(of.memos for of in tally.components.values()),
        rows=tally.rows,
        bytes=sum(of.size_bytes for of in tally.components.values()),
        secs=sum(of.secs for of in tally.components.values()),
        files_deleted=len(whole),
        deleted_bytes=sum(whole.values()),
        files_rewritten=len(tally.files) - len(whole),
        dead_bytes=sum(of.size_bytes for file, of in tally.files.items() if file not in whole),
        models=tuple(sorted({name for names in readers.values() for name in names})),
        needed_memos=sum(tally.components[fingerprint].memos for fingerprint in readers),
        needed_secs=sum(tally.components[fingerprint].secs for fingerprint in readers),
        pinned=tuple(PinnedComponents(holder, count) for holder, count in sorted(jobs.items())),
        pinned_memos=count_ready(connection, request, sorted(pinned)),
        stored_bytes=stored_bytes,
        budget_bytes=request.budget_bytes,
    )


def _whole_files(connection: Connection, tally: _Tally) -> dict[int, int]:
    """The files without other ready memos, with their bytes."""
    of, files = schema.memos.c, schema.memo_files.c
    whole: dict[int, int] = {}
    for chunk in chunks(sorted(tally.files)):
        stored = select(files.id, files.size_bytes, files.live_bytes).where(one_of(connection, files.id, chunk))
        # Other memos have bytes of their own, or none: then they are counted.
        sizes = {file: size for file, size, live in connection.execute(stored) if live <= tally.files[file].size_bytes}
        counted = select(of.file, func.count()).where(one_of(connection, of.file, sorted(sizes)))
        for file, memos in connection.execute(counted.where(of.state == MemoState.READY).group_by(of.file)):
            if memos == tally.files[file].memos:
                whole[file] = sizes[file]
    return whole


def _batches(
    connection: Connection, request: EvictionRequest, tally: _Tally, chosen: StoredMemos | None
) -> Iterator[StoredMemos]:
    """The memos in bounded batches, each read before it is changed."""
    if chosen is not None:
        # A file's memos together, so that its coverage is written once.
        places = sorted(range(len(chosen)), key=lambda at: (chosen.file[at], chosen.fingerprint[at]))
        for batch in chunks(places, BATCH_MEMOS):
            yield chosen.at(list(batch))
        return
    for fingerprints in _component_batches((name, tally.components[name].memos) for name in sorted(tally.components)):
        yield StoredMemos.joined(ready_memos(connection, request, fingerprints))


def _component_batches(counted: Iterable[tuple[str, int]]) -> Iterator[list[str]]:
    batch: list[str] = []
    memos = 0
    for fingerprint, count in counted:
        if batch and memos + count > BATCH_MEMOS:
            yield batch
            batch, memos = [], 0
        batch.append(fingerprint)
        memos += count
    if batch:
        yield batch
