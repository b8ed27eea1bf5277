"""The join job: events and rows meet by buckets of keys.

    fragments of both tables ── ReadPieces ── GroupByKey (bucket) ── JoinBucket ── GroupByKey (fragment) ── WriteFragment

A machine reads a fragment once and sends each bucket its part, as Arrow; another one computes all columns of a bucket, whose rows are all that it holds in memory.
Values go back to the fragments of their events. Neither the order in which parts arrive nor the number of buckets changes a bit, so a step that is tried again, or that
another machine does, has the same result; a result's file is named by the job and its fragment.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import JoinJobFailed, RunnerFailed
from pipelines.joins.work import FRAGMENT, JoinWork
from pipelines.runners.elements import CreateStrings, Redistribute
from pipelines.runners.error_documents import error_document, error_from_document, read_object
from pipelines.runners.remote import require_reach
from pipelines.runners.runner import RunnerOptions, run_pipeline
from transforms.columns.arrays import one_array
from transforms.errors import HeadraceError
from transforms.joins.evaluation import joined_columns
from warehouse.files.rows_by_key import ROW
from warehouse.joins.computation import TIME, Computation, joined_parts
from warehouse.storage.layout import JOBS
from warehouse.storage.storage import Storage
from warehouse.tables.table import Fragment

#: The labels of the steps, the keys of runners' states and metrics.
STEPS = ("Fragments", "Redistribute", "ReadPieces", "ByBucket", "JoinBucket", "ByFragment", "WriteFragment")
#: About so many rows of the other table are in one bucket.
BUCKET_ROWS = 2_000_000
_EVENTS, _ROWS = b"e", b"r"


class _Step(beam.DoFn):
    """A step with the work as text, and the name of the job."""

    def __init__(self, work: str, job: str) -> None:
        self._text, self._job = work, job

    @cached_property
    def _work(self) -> JoinWork:
        return JoinWork.from_json(self._text)

    def process(self, element: Any) -> Iterator[Any]:
        """:meth:`outputs`; an error of the data is also written for the process that started the job."""
        try:
            yield from self.outputs(element)
        except HeadraceError as error:
            document = json.dumps(error_document(error), sort_keys=True).encode()
            Storage(self._work.home).write_atomic(_error_path(self._job), document, synced=False)
            raise

    def outputs(self, element: Any) -> Iterator[Any]:
        """What follows from an element."""
        raise AssertionError("a step must implement outputs")

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_work"}


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(tuple[str, bytes])
class ReadPieces(_Step):
    """A fragment in, its part of each bucket out."""

    def outputs(self, element: str) -> Iterator[tuple[str, bytes]]:
        """``element``: the table, the fragment's number, and its document."""
        kind, number, document = element.split(" ", 2)
        fragment = Fragment.from_document(json.loads(document))
        if kind == "own":
            table, tag = self._work.events(fragment, int(number)), _EVENTS
            buckets = self._work.keys.buckets_of_events(table, self._work.buckets)
        else:
            table, tag = self._work.rows(fragment), _ROWS
            buckets = self._work.keys.buckets_of_rows(table, self._work.buckets)
        order = np.argsort(buckets, kind="stable")
        ends = np.searchsorted(buckets[order], np.arange(self._work.buckets + 1))
        whole = table.take(pa.array(order))
        for bucket in np.unique(buckets):
            part = whole.slice(int(ends[bucket]), int(ends[bucket + 1] - ends[bucket]))
            yield f"{bucket:06d}", tag + _bytes(part)


@beam.typehints.with_input_types(tuple[str, Iterable[bytes]])
@beam.typehints.with_output_types(tuple[str, bytes])
class JoinBucket(_Step):
    """The parts of a bucket in, the values of its events out, by fragment."""

    def outputs(self, element: tuple[str, Iterable[bytes]]) -> Iterator[tuple[str, bytes]]:
        """``element``: the bucket, and its parts in any order."""
        events: list[pa.Table] = []
        rows: list[pa.Table] = []
        for part in element[1]:
            (events if part[:1] == _EVENTS else rows).append(_table(part[1:]))
        if not events:
            return
        whole = joined_parts(events)
        other = joined_parts(rows) if rows else self._work.no_rows()
        found = joined_columns(self._work.definitions, whole, TIME, other, TIME)
        values = pa.table({FRAGMENT: whole[FRAGMENT], ROW: whole[ROW], **found})
        for number in pc.unique(values[FRAGMENT]).to_pylist():
            yield f"{number:06d}", _bytes(values.filter(pc.equal(values[FRAGMENT], number)).drop_columns([FRAGMENT]))


@beam.typehints.with_input_types(tuple[str, Iterable[bytes]])
@beam.typehints.with_output_types(str)
class WriteFragment(_Step):
    """The values of a fragment's events in, the name of the file that has them in order out."""

    def outputs(self, element: tuple[str, Iterable[bytes]]) -> Iterator[str]:
        """``element``: the fragment's number, and its values in any order."""
        number, parts = element
        whole = pa.concat_tables([_table(part) for part in parts]).sort_by(ROW).drop_columns([ROW])
        path = result_path(self._job, int(number))
        Storage(self._work.home).write_atomic(path, _bytes(whole.combine_chunks()))
        yield path


def result_path(job: str, number: int) -> str:
    """The file of a fragment's values."""
    return f"{JOBS}/{job}-{number:06d}.arrow"


def _error_path(job: str) -> str:
    """The file of an error of the data."""
    return f"{JOBS}/{job}-999999.json"


def build(pipeline: beam.Pipeline, work: JoinWork, fragments: Iterable[str], job: str) -> None:
    """The pipeline's shape; ``fragments``: the elements of :class:`ReadPieces`."""
    text = work.to_json()
    pieces: Any = pipeline | "Fragments" >> CreateStrings(list(fragments)) | "Redistribute" >> Redistribute()
    joined = (
        pieces
        | "ReadPieces" >> beam.ParDo(ReadPieces(text, job))
        | "ByBucket" >> beam.GroupByKey()
        | "JoinBucket" >> beam.ParDo(JoinBucket(text, job))
    )
    _ = joined | "ByFragment" >> beam.GroupByKey() | "WriteFragment" >> beam.ParDo(WriteFragment(text, job))


def elements_of(work: Computation) -> list[str]:
    """The fragments of both tables, as elements."""
    sides = (("own", work.own), ("other", work.seen))
    return [
        f"{kind} {number:06d} {json.dumps(one.placed.fragment.to_document())}"
        for kind, fragments in sides
        for number, one in enumerate(fragments)
    ]


def joined_by_beam(work: Computation, options: RunnerOptions, bucket_rows: int = BUCKET_ROWS) -> dict[str, pa.Array]:
    """The columns of a computation, as its own method has them, by a job of a runner.

    Raises the error of a step, :class:`JoinJobFailed` for a job that failed for another reason or has left out a fragment, and
    :class:`~transforms.errors.InputError` for a runner whose machines cannot reach a file.
    """
    storage, job = work.storage, uuid.uuid4().hex
    try:
        run_job(work, options, job, bucket_rows)
        parts = [_result(storage, job, number, one.placed.fragment) for number, one in enumerate(work.own)]
    finally:
        for path in (_error_path(job), *(result_path(job, number) for number in range(len(work.own)))):
            storage.delete(path)
    whole = pa.concat_tables(parts)
    return {name: one_array(whole[name]) for name in work.definitions}


def run_job(work: Computation, options: RunnerOptions, job: str, bucket_rows: int = BUCKET_ROWS) -> None:
    """Run the job of a computation, or with a template location write it, under a name. Errors as for :func:`joined_by_beam`."""
    require_reach(options, work.storage.home, *{one.placed.fragment.path for one in (*work.own, *work.seen)})
    rows = sum(one.placed.fragment.live_rows for one in work.seen)
    spread = JoinWork.of(work, max(1, -(-rows // bucket_rows)))
    try:
        run_pipeline(lambda pipeline: build(pipeline, spread, elements_of(work), job), options)
    except RunnerFailed as error:
        if work.storage.exists(_error_path(job)):
            document = read_object(work.storage.read_bytes(_error_path(job)), f"job {job}")
            raise error_from_document(document) from None
        raise JoinJobFailed(error.what, where=error.where, value=error.value, next_step=error.next_step) from error


def _result(storage: Storage, job: str, number: int, fragment: Fragment) -> pa.Table:
    path = result_path(job, number)
    if not storage.exists(path):
        raise JoinJobFailed(
            "every fragment of a join job must have a result",
            where=f"job {job}",
            value=fragment.path,
            next_step="see the runner's log",
        )
    found = _table(storage.read_bytes(path))
    if found.num_rows != fragment.rows:
        raise JoinJobFailed(
            "a result must have the rows of its fragment",
            where=f"job {job}, {fragment.path}",
            value=found.num_rows,
            allowed=str(fragment.rows),
        )
    return found


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _table(content: bytes) -> pa.Table:
    return pa.ipc.open_stream(content).read_all()
