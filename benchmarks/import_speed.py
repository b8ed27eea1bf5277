"""Import of CSV and JSON lines, beside the readers of Polars and DuckDB that write Parquet.

    python -m benchmarks.import_speed [--rows 1000000] [--rounds 3] [--logs narrow wide] [--formats csv jsonl] [--small]

The *narrow* log has 6 columns (time in ISO 8601, two ids, a text, a float, a label), the *wide* one 40 columns and half as many rows
(time in milliseconds, 20 integers, 10 floats, 8 texts, a label), both written by this script from a seed. Each side reads one
file with its types stated and writes zstd Parquet; each is a process of its own that has done the same to 1,000 rows before, so that imports
and compilation do not count. Sides alternate; processor seconds are those of all threads. A ratio is that of medians, with the least and the
largest one of a round.

*import* is the whole of ``import_logs``: the files' SHA-256, a Beam pipeline, rows by day in the order of time, and the publication of
the table; *parse and write* is the same without Beam and publication. Peers write one file in the order of the log.

Target: processor seconds of *parse and write* at most those of the faster peer.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.support.harness import machine
from pipelines.log_schemas.schema import LogSchema

TARGET = 1.0
_EPOCH_MS = 1_767_225_600_000  # 2026-01-01
_WORDS = (
    "red",
    "shoes",
    "cheap",
    "flight",
    "berlin",
    "hotel",
    "näher",
    "phone",
    "case",
    "summer",
    "dress",
    "\u6771\u4eac",
)


def narrow(rows: int) -> dict[str, pa.Array]:
    """The columns of the narrow log, in the order of time."""
    draw = np.random.default_rng(1)
    times = pa.array(np.sort(draw.integers(0, 86_400_000, rows)) + _EPOCH_MS).cast(pa.timestamp("ms"))
    words = np.array(_WORDS)[draw.integers(len(_WORDS), size=(rows, 3))]
    return {
        "time": times,
        "user": pa.array(draw.integers(1 << 40, size=rows)),
        "item": pa.array(draw.zipf(1.3, rows) % 100_000),
        "query": pa.array([" ".join(row) for row in words.tolist()]),
        "price": pa.array(np.round(draw.gamma(2.0, 20.0, rows), 2), mask=draw.random(rows) < 0.05),
        "label": pa.array(draw.integers(2, size=rows)),
    }


def wide(rows: int) -> dict[str, pa.Array]:
    """The columns of the wide log, in the order of time."""
    draw = np.random.default_rng(2)
    columns = {"time": pa.array(np.sort(draw.integers(0, 86_400_000, rows)) + _EPOCH_MS)}
    for k in range(20):
        columns[f"count{k}"] = pa.array(draw.integers(10 ** (k % 9 + 1), size=rows), mask=draw.random(rows) < 0.1)
    for k in range(10):
        columns[f"share{k}"] = pa.array(np.round(draw.normal(size=rows), k % 5 + 1))
    for k in range(8):
        names = np.array([f"{_WORDS[k]}-{number:x}" for number in range(10 ** (k % 4 + 1))])
        columns[f"name{k}"] = pa.array(names[draw.integers(len(names), size=rows)])
    return columns | {"label": pa.array(draw.integers(2, size=rows))}


LOGS: dict[str, Callable[[int], dict[str, pa.Array]]] = {"narrow": narrow, "wide": wide}


def write_log(columns: dict[str, pa.Array], log_format: str, target: Path) -> None:
    """Write the columns as text."""
    texts = [
        [one.isoformat(timespec="milliseconds") + "Z" for one in column.to_pylist()]
        if pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for column in columns.values()
    ]
    with target.open("w") as file:
        if log_format == "csv":
            file.write(",".join(columns) + "\n")
            file.writelines(
                ",".join("" if one is None else str(one) for one in row) + "\n" for row in zip(*texts, strict=True)
            )
        else:
            file.writelines(
                json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n"
                for row in zip(*texts, strict=True)
            )


def type_of(kind: pa.DataType) -> str:
    """The name of a column's type in a schema file."""
    return "string" if pa.types.is_string(kind) else "float64" if pa.types.is_floating(kind) else "int64"


def schema_of(columns: dict[str, pa.Array], log_format: str) -> LogSchema:
    """The schema file of a log."""
    unit = "iso8601" if pa.types.is_timestamp(columns["time"].type) else "ms"
    named = [
        {"name": name, "type": "timestamp" if name == "time" else type_of(column.type)}
        for name, column in columns.items()
    ]
    document = {"format": log_format, "columns": named, "time": {"column": "time", "unit": unit}, "partition_by": "day"}
    return LogSchema.from_document(document | ({"header": True} if log_format == "csv" else {}))


def by_import(source: Path, schema: LogSchema, target: Path) -> None:
    """The whole import."""
    from pipelines.ingest.job import ImportConfig, import_logs

    report = import_logs(ImportConfig((str(source),), schema, str(target), str(target.with_suffix(".rejects"))))
    assert not report.rejected


def by_job(source: Path, schema: LogSchema, target: Path) -> None:
    """The steps of an import without Beam: rows staged by partition, then partitions merged and written."""
    from pipelines.ingest.job import ImportJob
    from pipelines.parsing.sources import expand_files, identify

    (log,) = identify(expand_files([str(source)]))
    staging, output = target / "staging", target / "table"
    for folder in (staging, output):
        folder.mkdir(parents=True)
    job = ImportJob(schema, "time", staging, output, "benchmark")
    element = json.dumps(
        {
            "index": 0,
            "source": asdict(log),
            "side_file": str(target / "rejects"),
        }
    )
    parts: dict[str, list[str]] = {}
    for partition, place in job.parse_source(element):
        parts.setdefault(partition, []).append(place)
    assert parts
    for partition, places in parts.items():
        job.write_partition(partition, places)


def by_polars(source: Path, schema: LogSchema, target: Path) -> None:
    """Polars' reader and writer."""
    import polars as pl

    kinds = {"string": pl.String, "float64": pl.Float64, "int64": pl.Int64}
    types: dict[str, Any] = {one.name: kinds.get(str(one.dtype), pl.Int64) for one in schema.columns}
    is_text = schema.columns[0].unit == "iso8601"
    types["time"] = pl.String if is_text else pl.Int64
    frame = pl.read_csv(source, schema=types) if schema.format == "csv" else pl.read_ndjson(source, schema=types)
    time_of = (
        pl.col("time").str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_unit="us")
        if is_text
        else pl.from_epoch("time", time_unit="ms")
    )
    frame.with_columns(time_of).write_parquet(target, compression="zstd")


def by_duckdb(source: Path, schema: LogSchema, target: Path) -> None:
    """DuckDB's reader and writer."""
    import duckdb

    kinds = {"string": "VARCHAR", "float64": "DOUBLE", "int64": "BIGINT"}
    is_text = schema.columns[0].unit == "iso8601"
    types = {one.name: kinds.get(str(one.dtype), "TIMESTAMP" if is_text else "BIGINT") for one in schema.columns}
    listed = ", ".join(f"'{name}': '{kind}'" for name, kind in types.items())
    read = f"read_csv('{source}', header = true, delim = ',', quote = '\"', columns = {{{listed}}})"
    if schema.format == "jsonl":
        read = f"read_json('{source}', format = 'newline_delimited', columns = {{{listed}}})"
    time_of = "" if is_text else " REPLACE (epoch_ms(time) AS time)"
    duckdb.sql(f"COPY (SELECT *{time_of} FROM {read}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")


SIDES = {"import": by_import, "parse and write": by_job, "Polars": by_polars, "DuckDB": by_duckdb}
OURS, PEERS = "parse and write", ("Polars", "DuckDB")


def _processor_secs() -> float:
    used = [resource.getrusage(one) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run_side(side: str, folder: Path, log: str, log_format: str) -> None:
    """Print the wall and the processor seconds of one side."""
    schema = LogSchema.from_file(str(folder / f"{log}-{log_format}.schema"))
    run = SIDES[side]
    with tempfile.TemporaryDirectory(dir=folder) as name:
        run(folder / f"{log}-warm.{log_format}", schema, Path(name) / "warm")
        wall, processor = time.perf_counter(), _processor_secs()
        run(folder / f"{log}.{log_format}", schema, Path(name) / "target")
        print(json.dumps([time.perf_counter() - wall, _processor_secs() - processor]))


def measure(folder: Path, log: str, log_format: str, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """The wall and processor seconds of each side, one pair a round."""
    found: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side, secs in found.items():
            command = [sys.executable, "-m", "benchmarks.import_speed", "--side", side, str(folder), log, log_format]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr)
            wall, processor = json.loads(done.stdout.splitlines()[-1])
            secs.append((wall, processor))
    return found


def report(found: dict[str, list[tuple[float, float]]], rows: int, size_bytes: int, what: str) -> float:
    """Print the figures of one file; return our processor seconds by those of the faster peer."""
    print(f"\n{what}: {rows:,} rows, {size_bytes / rows:.0f} bytes per row")
    print(f"  {'':<18} {'processor':>10} {'wall':>8}   processor seconds by this side's: {OURS}")
    for side, secs in found.items():
        ratios = [ours[1] / theirs[1] for ours, theirs in zip(found[OURS], secs, strict=True)]
        processor, wall = statistics.median(one[1] for one in secs), statistics.median(one[0] for one in secs)
        note = "" if side == OURS else f"{statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"  {side:<18} {processor:8.2f} s {wall:6.2f} s   {note}".rstrip(), flush=True)
    best = min(statistics.median(one[1] for one in found[peer]) for peer in PEERS)
    return statistics.median(one[1] for one in found[OURS]) / best


def main() -> int:
    """Measure; the exit status is 1 if a target is missed (never with ``--small``)."""
    if sys.argv[1:2] == ["--side"]:
        run_side(sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the narrow log; the wide one has half as many")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--logs", nargs="+", choices=LOGS, default=list(LOGS))
    parser.add_argument("--formats", nargs="+", choices=("csv", "jsonl"), default=["csv", "jsonl"])
    parser.add_argument("--small", action="store_true", help="few rows and one round, to test the script")
    options = parser.parse_args()
    if options.small:
        options.rows, options.rounds = 2_000, 1
    print(machine())
    ratios = []
    with tempfile.TemporaryDirectory(prefix="headrace-import-") as name:
        folder = Path(name)
        for log in options.logs:
            rows = options.rows if log == "narrow" else options.rows // 2
            columns, few = LOGS[log](rows), LOGS[log](1_000)
            for log_format in options.formats:
                source = folder / f"{log}.{log_format}"
                write_log(columns, log_format, source)
                write_log(few, log_format, folder / f"{log}-warm.{log_format}")
                schema = schema_of(columns, log_format)
                (folder / f"{log}-{log_format}.schema").write_text(json.dumps(schema.to_document()))
                found = measure(folder, log, log_format, options.rounds)
                ratios.append(report(found, rows, source.stat().st_size, f"{log}, {log_format}"))
                source.unlink()
    print(
        f"\nparse and write by the faster peer, processor seconds: {', '.join(f'{one:.2f}x' for one in ratios)}, target {TARGET}x"
    )
    return 0 if max(ratios) <= TARGET or options.small else 1


if __name__ == "__main__":
    sys.exit(main())
