"""The pass: every partition that is missing, read once, through tf.Transform's analyzers, in one Beam job.

    partition ── ReadPartition ── record batches ── AnalyzeDatasetWithCache ──> the partition's accumulators

A partition is one tf.Transform dataset and one Beam element. Its batches go through the analyzer in order, in one bundle,
so its accumulators are the same on every run. Partitions and analyses run side by side.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import apache_beam as beam
import pyarrow as pa
import tensorflow_transform.beam as tft_beam
from tensorflow_transform.beam.analyzer_cache import DatasetCache, DatasetKey, WriteAnalysisCacheToFS

from pipelines.analysis.analyzers import adapter_config, labelled_accumulators, part_of, preprocessing_fn
from pipelines.analysis.contributions import job_folder, publish, write_accumulators
from pipelines.analysis.values import PartitionWork, batches
from pipelines.beam_runner import RunnerOptions, run_pipeline
from pipelines.elements import Spread, Texts
from pipelines.outcomes import error_document, error_from_document, read_object
from pipelines.progress import Progress, watched
from pipelines.remote_runners import require_runnable
from transforms.errors import HeadraceError
from warehouse.storage import Storage

_DONE = "done"


def run_passes(
    works: Sequence[PartitionWork], home: str, options: RunnerOptions | None = None, progress: Progress | None = None
) -> None:
    """Analyze partitions and make what they contribute known. ``progress`` counts partitions; each is read once.

    All or nothing: if one fails, the others' work is dropped. Raises the :class:`HeadraceError` that a worker met, or what
    the runner raises, or :class:`InputError` for a runner whose workers cannot reach the home and this machine's folder
    for temporary files.
    """
    if not works:
        return
    options = options or RunnerOptions()
    require_runnable(options, home, tempfile.gettempdir())
    storage, job = Storage(home), uuid.uuid4().hex
    done = f"{job_folder(job)}/{_DONE}"
    temporary = tempfile.mkdtemp(prefix="headrace-analyze-")
    try:
        with watched("analyzing", lambda: len(storage.list(f"{storage.home}/{done}")), len(works), progress):
            _run(works, storage, job, options, temporary)
        for work in works:
            for part in work.parts:
                publish(storage, job, part.contribution)
    except BaseException:
        _delete_all(storage, job_folder(job))
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _delete_all(storage, done)


def _delete_all(storage: Storage, folder: str) -> None:
    for file in storage.list(f"{storage.home}/{folder}"):
        storage.delete(file.path)


def _run(works: Sequence[PartitionWork], storage: Storage, job: str, options: RunnerOptions, temporary: str) -> None:
    try:
        with _quiet_beam():
            run_pipeline(lambda pipeline: _build(pipeline, works, storage.home, job, temporary), options)
    except Exception:
        for file in storage.list(f"{storage.home}/{job_folder(job)}/{_DONE}"):
            document = read_object(storage.read_bytes(file.path), file.path)
            if "error" in document:
                raise error_from_document(document["error"]) from None
        raise


@contextmanager
def _quiet_beam() -> Iterator[None]:
    """An error in a worker is raised where the job was started; Beam would log it several times over, with its own stack."""
    logger = logging.getLogger("apache_beam")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _build(pipeline: beam.Pipeline, works: Sequence[PartitionWork], home: str, job: str, temporary: str) -> None:
    def analyzed(work: PartitionWork) -> str:
        return json.dumps([work.label, [(part.operator, part.expression) for part in work.parts]], sort_keys=True)

    labelled = [work.to_json() for work in works if work.label is not None]
    if labelled:
        _ = (
            pipeline
            | "Labelled" >> Texts(labelled)
            | "SpreadLabelled" >> Spread()
            | "AccumulateLabelled" >> beam.ParDo(AccumulateLabelled(home, job))
        )
    others = sorted((work for work in works if work.label is None), key=analyzed)
    for number, (_, group) in enumerate(groupby(others, analyzed)):
        alike = {DatasetKey(f"{i:06d}"): work for i, work in enumerate(group)}
        data = {
            key: pipeline
            | f"Partition{number}.{key.key}" >> Texts([work.to_json()])
            | f"ReadPartition{number}.{key.key}" >> beam.ParDo(ReadPartition(home, job))
            for key, work in alike.items()
        }
        operators = [part.operator for part in next(iter(alike.values())).parts]
        with tft_beam.Context(temp_dir=f"{temporary}/{number}"):
            analysis = tft_beam.AnalyzeDatasetWithCache(preprocessing_fn(operators))
            _, cache = (data, {}, adapter_config(operators)) | f"Analyze{number}" >> analysis
        by_contribution = {
            DatasetKey(alike[key].parts[part_of(entry)].contribution): DatasetCache({entry: accumulators}, None)
            for key, entries in cache.items()
            for entry, accumulators in entries.items()
        }
        _ = by_contribution | f"Keep{number}" >> WriteAnalysisCacheToFS(pipeline, f"{home}/{job_folder(job)}")


class _Reader(beam.DoFn):
    """When a partition is done a document says so, or what went wrong."""

    def __init__(self, home: str, job: str) -> None:
        self._home = home
        self._job = job

    @contextmanager
    def _told(self, work: PartitionWork) -> Iterator[None]:
        try:
            yield
        except HeadraceError as error:
            self._say(work, {"error": error_document(error)})
            raise
        self._say(work, {"fragments": len(work.fragments), "rows": work.rows})

    def _say(self, work: PartitionWork, document: dict[str, object]) -> None:
        path = f"{job_folder(self._job)}/{_DONE}/{work.parts[0].contribution}.json"
        Storage(self._home).write_atomic(path, json.dumps(document, sort_keys=True).encode())


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(pa.RecordBatch)
class ReadPartition(_Reader):
    """The record batches of one partition, in order."""

    def process(self, element: str) -> Iterator[pa.RecordBatch]:
        """One partition of work in, its batches out."""
        work = PartitionWork.from_json(element)
        with self._told(work):
            yield from batches(self._home, work)


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(str)
class AccumulateLabelled(_Reader):
    """The accumulators of what stands beside a label in one partition, written where the analyzer cache writes its own."""

    def process(self, element: str) -> list[str]:
        """One partition of work in, its contributions out."""
        work = PartitionWork.from_json(element)
        with self._told(work):
            for position, part in enumerate(work.parts):
                found = labelled_accumulators(batches(self._home, work), position)
                write_accumulators(self._home, self._job, part.contribution, found)
        return [part.contribution for part in work.parts]
