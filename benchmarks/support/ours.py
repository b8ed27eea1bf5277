"""Headrace's side of throughput benchmarks: one compiled plan over the row groups of a Parquet file, in threads or on Beam."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.harness import THREADS
from transforms.execution.memory import keep_freed_memory
from transforms.execution.plan import Plan, compile_plan
from transforms.graphs.graph import Node, component_document, component_from_document
from warehouse.tables.parquet import read_groups


def run_in_process(components: Mapping[str, Node], source: Path, target: Path) -> None:
    """Read and compute row groups in one thread per core, and write them in order."""
    keep_freed_memory()
    groups = RowGroups(source, compile_plan(components))
    with ThreadPoolExecutor(THREADS) as pool:
        _write(pool.map(groups.computed, range(groups.count)), target)


def run_on_beam(components: Mapping[str, Node], source: Path, target: Path) -> None:
    """The same on Beam's DirectRunner, in the shape of the memoize job: one row group and one file per element."""
    import apache_beam as beam

    from pipelines.runners.runner import RunnerOptions, run_pipeline

    target.mkdir()
    documents = {name: component_document(root) for name, root in components.items()}
    count = pq.read_metadata(source).num_row_groups
    step = _on_beam(documents, str(source), str(target))

    def build(pipeline: Any) -> None:
        _ = pipeline | beam.Create(range(count), reshuffle=False) | beam.ParDo(step)

    run_pipeline(build, RunnerOptions(), one_step=True)


def _on_beam(documents: Mapping[str, Mapping[str, Any]], source: str, target: str) -> Any:
    from pipelines.runners.bundle_threads import BundleThreads
    from pipelines.runners.runner import RunnerOptions

    class ComputeRowGroup(BundleThreads):
        def setup(self) -> None:
            keep_freed_memory()
            roots = {name: component_from_document(document) for name, document in documents.items()}
            self.groups = RowGroups(Path(source), compile_plan(roots))

        def work(self, group: int) -> None:
            _write(iter([self.groups.computed(group)]), Path(target) / f"{group:06d}.arrow")

        def emit(self, result: None) -> list[None]:
            return []

    return ComputeRowGroup(RunnerOptions().threads)


class RowGroups:
    """The row groups of a Parquet file, and a plan over each."""

    def __init__(self, source: Path, plan: Plan) -> None:
        self.source, self.plan = source, plan
        self.metadata = pq.read_metadata(source)
        self.count = self.metadata.num_row_groups
        self.names = [column.name for column in plan.columns]

    def read(self, group: int) -> pa.Table:
        """The columns that the plan needs."""
        with pa.OSFile(str(self.source)) as source:
            file = pq.ParquetFile(source, metadata=self.metadata)
            return read_groups(source, file, [group], self.names, self.names, threads=False)

    def computed(self, group: int) -> pa.RecordBatch:
        """The plan's columns."""
        result = self.plan.run(self.read(group))
        assert not result.failures, result.failures
        return pa.record_batch(result.columns)


def _write(batches: Iterator[pa.RecordBatch], target: Path) -> None:
    first = next(batches)
    with pa.OSFile(str(target), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
