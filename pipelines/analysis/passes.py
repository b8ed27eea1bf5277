"""The Beam job of analyses: each missing partition is read once for all of its analyses.

    partitions of work ── Redistribute ── AnalyzePartitions ──> contributions

An element is a partition. Its batches go through the accumulators in order, and their contributions are published at
once: a killed job loses only the partitions that it was reading.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import apache_beam as beam

from pipelines.analysis.accumulators import new_accumulator
from pipelines.analysis.contributions import write_contribution
from pipelines.analysis.values import PartitionWork, read_batches
from pipelines.fragments.work import ComponentList
from pipelines.runners.bundle_threads import BundleThreads
from pipelines.runners.elements import CreateStrings, Redistribute
from pipelines.runners.error_documents import error_document, error_from_document, read_object
from pipelines.runners.progress import OnProgress, report_progress
from pipelines.runners.remote import require_runnable
from pipelines.runners.runner import RunnerOptions, run_pipeline
from transforms.errors import HeadraceError
from warehouse.storage.layout import ANALYSIS
from warehouse.storage.storage import Storage

#: The steps of the pipeline, by label. Runners key their state and their metrics by these.
STEPS = ("Partitions", "Redistribute", "AnalyzePartitions")


def run_passes(
    works: Sequence[PartitionWork], home: str, options: RunnerOptions | None = None, progress: OnProgress | None = None
) -> None:
    """Analyze partitions and store their contributions. ``progress`` counts partitions; each is read once.

    Contributions stored before an error are kept. Raises the :class:`HeadraceError` of a worker, the errors of the
    runner, and :class:`InputError` for a runner whose workers cannot reach the home or a fragment.
    """
    if not works:
        return
    options = options or RunnerOptions()
    require_runnable(options, home, *{fragment.path for work in works for fragment in work.fragments})
    storage, job = Storage(home), uuid.uuid4().hex
    done = done_folder(job)
    try:
        with report_progress("analyzing", lambda: len(storage.list(done)), len(works), progress):
            _run(works, storage, job, options)
    finally:
        for file in storage.list(done):
            storage.delete(file.path)


def done_folder(job: str) -> str:
    """The folder, relative to the home, where a job's workers write one document per finished partition."""
    return f"{ANALYSIS}/jobs/{job}/done"


def _run(works: Sequence[PartitionWork], storage: Storage, job: str, options: RunnerOptions) -> None:
    try:
        with _quiet_beam():
            run_pipeline(
                lambda pipeline: build(pipeline, works, storage.home, job, options.threads), options, one_step=True
            )
    except Exception:
        for file in storage.list(done_folder(job)):
            document = read_object(storage.read_bytes(file.path), file.path)
            if "error" in document:
                raise error_from_document(document["error"]) from None
        raise


@contextmanager
def _quiet_beam() -> Iterator[None]:
    """Mute Beam's log: the error of a worker is raised in this process, and Beam would also log it several times."""
    logger = logging.getLogger("apache_beam")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def build(pipeline: beam.Pipeline, works: Sequence[PartitionWork], home: str, job: str, threads: int = 1) -> None:
    """The pipeline's shape. With several ``threads`` one step works on all partitions; else workers share them."""
    listed = ComponentList()
    partitions = pipeline | "Partitions" >> CreateStrings([work.to_json(listed) for work in works])
    if threads == 1:
        partitions = partitions | "Redistribute" >> Redistribute()
    _ = partitions | "AnalyzePartitions" >> beam.ParDo(AnalyzePartitions(home, job, listed.to_json(), threads))


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(str)
class AnalyzePartitions(BundleThreads):
    """:func:`analyze_partition`, with a document per partition for its end or its error."""

    def __init__(self, home: str, job: str, listed: str, threads: int = 1) -> None:
        super().__init__(threads)
        self._home = home
        self._job = job
        self._listed = listed

    def work(self, element: str) -> str:
        """One partition of work in, its name out."""
        work = PartitionWork.from_json(element, self._listed)
        try:
            analyze_partition(self._home, work)
        except HeadraceError as error:
            self._report(work, {"error": error_document(error)})
            raise
        self._report(work, {"fragments": len(work.fragments), "rows": work.rows})
        return work.partition

    def emit(self, result: str) -> list[str]:
        """The partition's name."""
        return [result]

    def _report(self, work: PartitionWork, document: dict[str, object]) -> None:
        path = f"{done_folder(self._job)}/{work.parts[0].contribution}.json"
        Storage(self._home).write_atomic(path, json.dumps(document, sort_keys=True).encode(), synced=False)


def analyze_partition(home: str, work: PartitionWork) -> None:
    """Read a partition once and store its contributions to its analyses."""
    accumulators = [new_accumulator(part.operator) for part in work.parts]
    for batch in read_batches(home, work):
        for accumulator, values in zip(accumulators, batch, strict=True):
            accumulator.add(values)
    storage = Storage(home)
    for part, accumulator in zip(work.parts, accumulators, strict=True):
        write_contribution(storage, part.contribution, accumulator.contribution())
