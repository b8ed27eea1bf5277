"""Read the files of a known log, and publish the prepared rows as a table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import cast

import pyarrow as pa

from pipelines.errors import OutputTaken, UnknownFormat
from pipelines.formats.options import FormatOptions
from pipelines.ingest.report import ImportReport
from pipelines.log_schemas.schema import LogSchema, PartitionBy
from pipelines.outputs.partitions import content_id, parquet_bytes, split_by_partition
from pipelines.outputs.publication import ImportLedger, StagedFile, write_atomic, write_staged
from pipelines.parsing.log import parse_whole_log
from pipelines.parsing.rejects import check_share, count_reasons, reject_file_paths, rejects_document
from pipelines.parsing.sources import LogSource, expand_files, identify
from pipelines.runners.progress import OnProgress
from transforms.graphs.encoding import digest


@dataclass(frozen=True, slots=True)
class RawLog:
    """The rows of a log's files, in the order of names and lines, and the file of each row."""

    table: pa.Table
    files: int
    rejected: int
    rejects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """``table``: every row of the output, in time order of its ``time`` column."""

    table: pa.Table
    rejected: int
    rejects: tuple[str, ...]
    partition_by: PartitionBy = "hour"
    counts: dict[str, int] = field(default_factory=dict)


def find_files(source: str, pattern: str, format_name: str) -> tuple[str, ...]:
    """The files of a known log: ``source`` itself if it is a file, else those in it that match ``pattern``.

    Raises :class:`~pipelines.errors.NoLogFiles` for a missing path, :class:`UnknownFormat` if no file matches.
    """
    if os.path.isdir(source):
        found = sorted(str(path) for path in Path(source).glob(pattern))
        if not found:
            raise UnknownFormat(f"the folder must hold files of the {format_name} log", where=source, allowed=f"files named {pattern}",
                                next_step="check the path and the format's name")  # fmt: skip
        return tuple(found)
    return expand_files([source])


def read_log(paths: Sequence[str], schema: LogSchema, rejects: str, options: FormatOptions,
             progress: OnProgress | None) -> RawLog:  # fmt: skip
    """Every row of ``paths``; bad rows go to reject files in ``rejects``. Raises :class:`TooManyRejects`."""
    sources = [LogSource(os.path.basename(path), "", os.path.abspath(path)) for path in paths]
    tables: list[pa.Table] = []
    reasons: Counter[str] = Counter()
    written: list[str] = []
    with ThreadPoolExecutor(_threads()) as pool:
        parsed = pool.map(lambda path: parse_whole_log(path, schema), paths)
        for done, (block, source, side_file) in enumerate(
            zip(parsed, sources, reject_file_paths(sources, Path(rejects)), strict=True), start=1
        ):
            tables.append(block.table)
            reasons.update(count_reasons(block.rejects))
            if block.rejects:
                write_atomic(Path(side_file), rejects_document(block.rejects, source.path))
                written.append(side_file)
            if progress is not None:
                progress(done, len(paths), "reading logs")
    table = pa.concat_tables(tables).combine_chunks()
    check_share(table.num_rows, reasons, options.max_reject_share, rejects)
    return RawLog(table, len(paths), sum(reasons.values()), tuple(written))


def publish_prepared(
    name: str,
    paths: Sequence[str],
    output: str,
    options: FormatOptions,
    prepare_rows: Callable[[str], PreparedRows],
    progress: OnProgress | None,
) -> ImportReport:
    """Publish the rows of ``prepare_rows(rejects folder)`` as the whole content of ``output``, all or nothing.

    The same files with the same options give the same bytes; a second call writes nothing and returns the first
    report with 0 written files. Raises :class:`OutputTaken` if the folder holds other rows.
    """
    ledger = ImportLedger(output)
    sources = identify(paths)
    options_digest = digest([name, {key: str(value) for key, value in options.identity().items()}])
    import_id = digest([options_digest, [[source.name, source.sha256] for source in sources]])[:16]
    with ledger.locked():
        ledger.recover()
        earlier = _earlier_report(ledger, import_id)
        if earlier is not None:
            return replace(earlier, files=0, skipped_files=len(sources), written_files=0, written_bytes=0)
        try:
            prepared = prepare_rows(options.rejects or f"{os.path.normpath(output)}.rejects")
            if options.partition_by:
                prepared = replace(prepared, partition_by=options.partition_by)
            staged = _stage(prepared, ledger.stage(import_id), import_id, progress)
            report = _report(output, prepared, staged, len(sources))
            document = {"sources": [asdict(source) for source in sources], "report": report.to_document()}
            ledger.publish(import_id, staged, document)
            return report
        except BaseException:
            if not (ledger.folder / f"{import_id}.pending.json").exists():
                ledger.discard(import_id)
            raise


def _earlier_report(ledger: ImportLedger, import_id: str) -> ImportReport | None:
    finished = ledger.folder / f"{import_id}.json"
    imports = ledger.imports()
    if finished.exists() and len(imports) == 1:
        fields = cast("dict[str, object]", imports[0]["report"])
        fields |= {key: tuple(cast("list[str]", fields[key])) for key in ("partitions", "rejects")}
        return ImportReport(**fields)  # type: ignore[arg-type]  # written by to_document
    if imports or any(ledger.output.rglob("*.parquet")):
        raise OutputTaken("the output folder must be empty or hold the same files with the same options", where=str(ledger.output),
                          next_step="name another folder, or remove this one and its .imports folder")  # fmt: skip
    return None


def _stage(prepared: PreparedRows, staging: Path, import_id: str, progress: OnProgress | None) -> list[StagedFile]:
    partitions = list(split_by_partition(prepared.table, "time", prepared.partition_by))

    def write(item: tuple[str, pa.Table]) -> StagedFile:
        partition, rows = item
        content = parquet_bytes(rows)
        place = f"{partition}/part-{content_id(import_id.encode() + content)}.parquet"
        return StagedFile(write_staged(staging, place, content), place, rows.num_rows, len(content), late=False)

    with ThreadPoolExecutor(_threads()) as pool:
        return list(_counted(pool.map(write, partitions), len(partitions), progress))


def _counted(files: Iterator[StagedFile], total: int, progress: OnProgress | None) -> Iterator[StagedFile]:
    for done, file in enumerate(files, start=1):
        if progress is not None:
            progress(done, total, "writing partitions")
        yield file


def _report(output: str, prepared: PreparedRows, staged: Sequence[StagedFile], files: int) -> ImportReport:
    return ImportReport(
        output=output,
        rows=sum(file.rows for file in staged),
        rejected=prepared.rejected,
        partitions=tuple(os.path.dirname(file.place) for file in staged),
        late_rows=0,
        files=files,
        skipped_files=0,
        written_files=len(staged),
        written_bytes=sum(file.size_bytes for file in staged),
        rejects=prepared.rejects,
        counts=prepared.counts,
    )


def _threads() -> int:
    return max(os.cpu_count() or 1, 2)
