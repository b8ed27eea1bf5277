"""Raw logs to hive-partitioned Parquet: one Beam pipeline whose elements are files and partitions, never rows.

    log files ── ParseLogs ──> parts (a partition's rows of one file) ── GroupByPartition ── WritePartitions ──> staged

Each file is read once. Its rows are split by partition and staged as Arrow; Beam carries only the places of the staged
parts. The parts of a partition are merged in time order (rows of one time keep the order of files and lines) into one
Parquet file. When every file has been read and the share of rejected rows is acceptable, all files become part of the
table at once (:mod:`pipelines.outputs.publication`). Importing the same files again changes nothing; importing later
files adds files.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics import Metrics

from pipelines.ingest.report import ImportReport
from pipelines.ingest.unique_rows import REPEATED, check_keys, without_known_keys
from pipelines.log_schemas.schema import LogSchema
from pipelines.outputs.outcomes import count_outcomes, read_outcomes, write_outcome
from pipelines.outputs.partitions import (
    content_id,
    many_partitions_warning,
    parquet_bytes,
    sort_by_time,
    split_by_partition,
)
from pipelines.outputs.publication import ImportLedger, StagedFile, write_staged
from pipelines.parsing.blocks import LONGEST_LINE_BYTES
from pipelines.parsing.folder_columns import level_schema, unread_levels, with_levels
from pipelines.parsing.log import parse_log
from pipelines.parsing.parquet import ParquetLog
from pipelines.parsing.rejects import RejectFile, check_share, reject_file_paths
from pipelines.parsing.row_order import check_file_times, first_rows_of
from pipelines.parsing.sources import LogSource, find_files, identify, level_names, new_sources
from pipelines.parsing.typed_rows import ParsedBlock
from pipelines.runners.elements import CreateStrings, Redistribute
from pipelines.runners.error_documents import Document, error_document, error_from_document
from pipelines.runners.progress import OnProgress, report_progress
from pipelines.runners.remote import require_runnable
from pipelines.runners.runner import RunnerOptions, run_pipeline
from transforms.errors import HeadraceError, InputError
from transforms.graphs.encoding import digest

NAMESPACE = "headrace.import_logs"
#: The steps of the pipeline, by label. Runners key their state and their metrics by these.
STEPS = ("Files", "Redistribute", "ParseLogs", "GroupByPartition", "WritePartitions")

_RUN_BYTES = 256 << 20
_LONGEST_LINE_LIMIT = 256 << 20

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ImportConfig:
    """The options of one import.

    Attributes:
        files: paths, folders or glob patterns.
        schema: the layout of the files.
        output: the table's folder.
        rejects: the folder of the reject files.
        max_reject_share: above this share of rejected rows nothing is published.
        longest_line_bytes: a longer line is one rejected row, of which only the start is kept.
        unique_by: of rows with equal values in these columns a partition keeps the first one in time order.
        levels: the levels of the files' folders that are columns, as far as the schema does not have them.
    """

    files: tuple[str, ...]
    schema: LogSchema | ParquetLog
    output: str
    rejects: str
    max_reject_share: float = 0.05
    longest_line_bytes: int = LONGEST_LINE_BYTES
    unique_by: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_keys(self.unique_by, self.arrow_schema)
        if not 0 <= self.max_reject_share <= 1:
            raise InputError("max_reject_share must be a share", value=self.max_reject_share, allowed="0 to 1",
                             next_step="give --max-reject-share such as 0.05")  # fmt: skip
        if not 1 <= self.longest_line_bytes <= _LONGEST_LINE_LIMIT:
            raise InputError(f"longest_line_bytes must be from 1 to {_LONGEST_LINE_LIMIT}", value=self.longest_line_bytes,
                             allowed=f"1 to {_LONGEST_LINE_LIMIT}", next_step="give a limit in this range")  # fmt: skip
        if self.schema.time is None:
            raise InputError("an imported log must have an event time", where="schema, time",
                             next_step='add "time" to the schema file')  # fmt: skip

    @property
    def time_column(self) -> str:
        """The name of the event time's column."""
        return self.schema.time.column if self.schema.time else ""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the imported table."""
        return level_schema(self.schema.arrow_schema, self.levels)


def utc_now() -> datetime:
    """This machine's time in UTC."""
    return datetime.now(UTC)


def import_logs(
    config: ImportConfig,
    runner: RunnerOptions | None = None,
    progress: OnProgress | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> ImportReport:
    """Import every file of ``config`` that the output does not hold yet.

    Event times are plausible from 1970 until a year after ``clock``, unless the schema says otherwise.

    Raises :class:`~pipelines.errors.NoLogFiles`, :class:`~pipelines.errors.TruncatedLog`,
    :class:`~pipelines.errors.TooManyRejects`, or :class:`~transforms.errors.Busy` while another import writes to the
    same output; the table is then as it was. Rows are deterministic: the same files give the same bytes.
    Raises :class:`InputError` for a runner whose workers cannot reach the output.
    """
    runner = runner or RunnerOptions()
    require_runnable(runner, config.output)
    found = find_files(config.files)
    config = replace(config, levels=tuple(dict.fromkeys((*config.levels, *level_names(found)))))
    ledger = ImportLedger(config.output)
    with ledger.locked():
        ledger.recover()
        every = identify(found)
        sources = new_sources(every, ledger.imports())
        if not sources:
            return _nothing_new(config, len(every))
        schema = config.schema.bounded(clock())
        check_file_times(schema, sources)
        first_rows = first_rows_of(schema, sources, ledger.imports(), config.longest_line_bytes)
        import_id = digest([config.schema.digest(), [_identity_document(source) for source in sources]])[:16]
        staging = ledger.stage(import_id)
        try:
            job = ImportJob(
                schema, config.time_column, staging, ledger.output, import_id, config.longest_line_bytes, first_rows,
                config.unique_by, config.levels,
            )  # fmt: skip
            job.run(sources, reject_file_paths(sources, Path(config.rejects)), runner, progress)
            return _publish(job, config, sources, len(every) - len(sources), ledger)
        except BaseException:
            if not (ledger.folder / f"{import_id}.pending.json").exists():
                ledger.discard(import_id)
            raise


def _identity_document(source: LogSource) -> list[object]:
    return [source.name, source.sha256, *([[list(level) for level in source.levels]] if source.levels else [])]


def _nothing_new(config: ImportConfig, skipped: int) -> ImportReport:
    return ImportReport(config.output, 0, 0, (), 0, files=0, skipped_files=skipped, written_files=0, written_bytes=0)


@dataclass(frozen=True, slots=True)
class ImportJob:
    """One run of the import pipeline: the fields hold everything that a worker needs."""

    schema: LogSchema | ParquetLog
    time_column: str
    staging: Path
    output: Path
    import_id: str
    longest_line_bytes: int = LONGEST_LINE_BYTES
    first_rows: tuple[int, ...] = ()
    unique_by: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()

    def run(
        self, sources: Sequence[LogSource], rejects: Sequence[str], runner: RunnerOptions, progress: OnProgress | None
    ) -> None:
        """Parse and stage everything; results and errors are left in the staging folder."""
        elements = [
            json.dumps({"index": index, "source": asdict(source), "side_file": side_file}, sort_keys=True)
            for index, (source, side_file) in enumerate(zip(sources, rejects, strict=True))
        ]
        parsed = report_progress(
            "reading logs", lambda: count_outcomes(self.staging, "source-"), len(sources), progress
        )
        with parsed:
            run_pipeline(lambda pipeline: self.build(pipeline, elements), runner)

    def build(self, pipeline: beam.Pipeline, elements: Sequence[str]) -> None:
        """The pipeline's shape. Every element and every key is text (StrUtf8Coder: deterministic, no pickle)."""
        _ = (
            pipeline
            | "Files" >> CreateStrings(elements)
            | "Redistribute" >> Redistribute()
            | "ParseLogs" >> beam.ParDo(ParseLogs(self))
            | "GroupByPartition" >> beam.GroupByKey()
            | "WritePartitions" >> beam.ParDo(WritePartitions(self))
        )

    def parse_source(self, element: str) -> list[tuple[str, str]]:
        """Read one file; return (partition, place of its staged rows) for each partition with rows of the file."""
        entry = json.loads(element)
        source, index = LogSource.from_document(entry["source"]), int(entry["index"])
        outcome: dict[str, object] = {"name": source.name}
        parts: list[tuple[str, str]] = []
        try:
            rows, side = 0, RejectFile(entry["side_file"], source.path)
            notes: Counter[str] = Counter()
            first_row = self.first_rows[index] if self.first_rows else 0
            for run, table in enumerate(self._runs(source, side, notes, first_row)):
                rows += table.num_rows
                parts += self._stage_run(table, index, run)
            side.finish()
            if warning := many_partitions_warning(len({partition for partition, _ in parts}), self.schema.partition_by):
                _LOG.warning("%s has events of %s", source.path, warning)  # before any is written
            outcome |= {"rows": rows, "rejected": side.reasons.total(), "reasons": dict(side.reasons),
                        "side_file": entry["side_file"], "notes": dict(notes), "example": side.example}  # fmt: skip
        except HeadraceError as error:
            outcome["error"], parts = error_document(error), []
        write_outcome(self.staging, f"source-{index:06d}", outcome)
        return parts

    def _runs(self, source: LogSource, side: RejectFile, notes: Counter[str], first_row: int) -> Iterator[pa.Table]:
        """A file's rows in pieces of bounded memory; rejects go to ``side``, counts of changed values to ``notes``."""
        tables: list[pa.Table] = []
        held_bytes = 0
        for block in self._blocks(source, first_row):
            side.add(block.rejects)
            notes.update(block.notes)
            if block.table.num_rows:
                tables.append(block.table)
                held_bytes += block.table.nbytes
            if held_bytes >= _RUN_BYTES:
                yield pa.concat_tables(tables)
                tables, held_bytes = [], 0
        if tables:
            yield pa.concat_tables(tables)

    def _blocks(self, source: LogSource, first_row: int) -> Iterator[ParsedBlock]:
        """The blocks of a file, with the columns of the table."""
        stated: dict[str, str | None] = {**dict.fromkeys(self.levels), **dict(source.levels)}
        if isinstance(self.schema, ParquetLog):
            blocks = self.schema.blocks(source.path, source.levels)
        else:
            blocks = parse_log(
                source.path, self.schema, longest_line_bytes=self.longest_line_bytes, first_row=first_row
            )
        for block in blocks:
            notes = block.notes
            if isinstance(self.schema, LogSchema):
                notes = {**notes, **unread_levels(block.table, dict(source.levels))}
            yield replace(block, table=with_levels(block.table, stated), notes=notes)

    def _stage_run(self, table: pa.Table, index: int, run: int) -> Iterator[tuple[str, str]]:
        """Write one Arrow file with the batches of each partition one after the other."""
        path, first = self.staging / f"run-{index:06d}-{run:04d}.arrow", 0
        with pa.ipc.new_file(str(path), table.schema) as writer:
            for partition, rows in split_by_partition(table, self.time_column, self.schema.partition_by):
                batches = rows.to_batches()
                for batch in batches:
                    writer.write_batch(batch)
                place = {"index": index, "run": run, "first_batch": first, "batches": len(batches), "path": str(path)}
                first += len(batches)
                yield partition, json.dumps(place, sort_keys=True)

    def write_partition(self, partition: str, parts: Iterable[str]) -> str:
        """Merge a partition's parts into one staged Parquet file; return its outcome document."""
        outcome: Document
        try:
            places = sorted((json.loads(part) for part in parts), key=lambda place: (place["index"], place["run"]))
            every = sort_by_time(
                pa.Table.from_batches([batch for place in places for batch in _read_batches(place)]), self.time_column
            )
            folder = self.output / partition
            table = without_known_keys(every, folder, self.unique_by)
            repeated = every.num_rows - table.num_rows
            if not table.num_rows:
                return self._report(partition, {"repeated": repeated})
            content = parquet_bytes(table)
            late = folder.is_dir() and any(folder.glob("*.parquet"))
            name = f"{'late' if late else 'part'}-{content_id(self.import_id.encode() + content)}.parquet"
            place = f"{partition}/{name}"
            file = StagedFile(write_staged(self.staging, place, content), place, table.num_rows, len(content), late)
            outcome = {"file": asdict(file), "repeated": repeated}
        except HeadraceError as error:
            outcome = {"error": error_document(error)}
        return self._report(partition, outcome)

    def _report(self, partition: str, found: Document) -> str:
        """Write the outcome of a partition to the staging folder; return it as text."""
        outcome = {"partition": partition, **found}
        write_outcome(self.staging, f"partition-{partition.replace('/', '-')}", outcome)
        return json.dumps(outcome, sort_keys=True)


def _read_batches(place: dict[str, object]) -> list[pa.RecordBatch]:
    first, batches = (int(cast(int, place[name])) for name in ("first_batch", "batches"))
    with pa.memory_map(str(place["path"])) as file:
        run = pa.ipc.open_file(file)
        return [run.get_batch(batch) for batch in range(first, first + batches)]


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(tuple[str, str])
class ParseLogs(beam.DoFn):
    """:meth:`ImportJob.parse_source`, counted."""

    def __init__(self, job: ImportJob) -> None:
        self._job = job
        self._files = Metrics.counter(NAMESPACE, "files")
        self._parts = Metrics.counter(NAMESPACE, "parts")

    def process(self, element: str) -> list[tuple[str, str]]:
        """One log file in, its parts out."""
        parts = self._job.parse_source(element)
        self._files.inc()
        self._parts.inc(len(parts))
        return parts


@beam.typehints.with_input_types(tuple[str, Iterable[str]])
@beam.typehints.with_output_types(str)
class WritePartitions(beam.DoFn):
    """:meth:`ImportJob.write_partition`, counted."""

    def __init__(self, job: ImportJob) -> None:
        self._job = job
        self._partitions = Metrics.counter(NAMESPACE, "partitions")

    def process(self, element: tuple[str, Iterable[str]]) -> list[str]:
        """One partition with all its parts in, its outcome out."""
        self._partitions.inc()
        return [self._job.write_partition(*element)]


def _publish(
    job: ImportJob, config: ImportConfig, sources: Sequence[LogSource], skipped: int, ledger: ImportLedger
) -> ImportReport:
    read = read_outcomes(job.staging, "source-")
    written = read_outcomes(job.staging, "partition-")
    for outcome in (*read, *written):
        if "error" in outcome:
            raise error_from_document(cast(Document, outcome["error"]))
    rows, rejected = _total(read, "rows"), _total(read, "rejected")
    reasons: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    for outcome in read:
        reasons.update(cast("dict[str, int]", outcome["reasons"]))
        notes.update(cast("dict[str, int]", outcome["notes"]))
    example = next((str(outcome["example"]) for outcome in read if outcome["example"]), "")
    check_share(rows, reasons, config.max_reject_share, config.rejects, example)
    repeated = _total(written, "repeated")
    if repeated:
        notes[REPEATED] = repeated
    files = {str(outcome["partition"]): _staged_file(outcome) for outcome in written if "file" in outcome}
    report = ImportReport(
        output=config.output,
        rows=rows - repeated,
        rejected=rejected,
        partitions=tuple(sorted(files)),
        late_rows=sum(file.rows for file in files.values() if file.late),
        files=len(sources),
        skipped_files=skipped,
        written_files=len(files),
        written_bytes=sum(file.size_bytes for file in files.values()),
        rejects=tuple(str(outcome["side_file"]) for outcome in read if outcome["rejected"]),
        counts=dict(sorted(notes.items())),
    )
    document: dict[str, object] = {"sources": [asdict(source) for source in sources], "report": report.to_document()}
    if job.first_rows:
        document["next_row"] = job.first_rows[-1]
    ledger.publish(job.import_id, files.values(), document)
    return report


def _staged_file(outcome: Document) -> StagedFile:
    return StagedFile(**cast("dict[str, Any]", outcome["file"]))  # written by asdict in write_partition


def _total(outcomes: Iterable[Document], name: str) -> int:
    return sum(cast(int, outcome[name]) for outcome in outcomes)
