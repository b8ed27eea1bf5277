"""Throughput of the transforms from one Parquet file: Headrace, tf.Transform, Polars and DuckDB, in rows per second.

The work is the paper's example graph (unigrams of texts A and B, their intersection, joined with the unigrams of text
C, hashed) and 26 hashed categoricals. Every side reads the same file and writes all 27 columns as Arrow files.
tf.Transform's columns must equal Headrace's bit for bit. Polars and DuckDB have other hash functions, so their tokens
are compared before hashing, and their ids by number per row and number of distinct ids.

    python -m benchmarks.transform_throughput [--rows N] [--rounds R] [--sides NAME ...]
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.harness import THREADS, Side, machine, measure, run_cleanly, table
from benchmarks.support.ours import run_in_process, run_on_beam
from benchmarks.support.rivals import differing_counts, differing_from_tft, read, run_duckdb, run_polars, run_tft
from benchmarks.support.search_log import IDS, TEXTS, generate
from transforms.execution.plan import compile_plan
from transforms.expressions.expression import concat, text
from transforms.graphs.graph import Node

if TYPE_CHECKING:
    import polars as pl

BUCKETS = 1_000_000


def components() -> dict[str, Node]:
    """The benchmark's 27 model inputs."""
    inputs = {"overlap": _tokens().hash_buckets(BUCKETS)}
    inputs |= {name: text(name).fill_null("").hash_buckets(BUCKETS) for name in IDS}
    return {name: expr.node for name, expr in inputs.items()}


def _tokens() -> Any:
    query, title, category = (text(name) for name in TEXTS)
    return concat(query.unigrams() & title.unigrams(), category.unigrams())


def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
    """The same as a preprocessing_fn of tf.Transform."""
    import tensorflow as tf
    import tensorflow_transform as tft

    query, title, category = (tf.strings.split(inputs[name]) for name in TEXTS)
    common = tf.RaggedTensor.from_sparse(tf.sets.intersection(query.to_sparse(), title.to_sparse()))
    tokens = tf.concat([common, category], axis=1)
    outputs = {"overlap": tft.hash_strings(tokens.to_sparse(), BUCKETS)}
    return outputs | {name: tft.hash_strings(inputs[name], BUCKETS) for name in IDS}


def polars_expressions() -> list[pl.Expr]:
    """The same in Polars."""
    import polars as pl

    hashed = polars_tokens().list.eval(pl.element().hash() % BUCKETS).alias("overlap")
    return [hashed, *((pl.col(name).fill_null("").hash() % BUCKETS).alias(name) for name in IDS)]


def polars_tokens() -> pl.Expr:
    """The tokens of the example graph, the fastest of four ways to write it."""
    import polars as pl

    none = pl.lit([], dtype=pl.List(pl.String))
    query, title, category = (pl.col(name).str.split(" ").fill_null(none) for name in TEXTS)
    return query.list.set_intersection(title).list.concat(category)


DUCKDB_TOKENS = (
    "list_concat(list_intersect(string_split(query, ' '), string_split(title, ' ')), string_split(category, ' '))"
)


def duckdb_query() -> str:
    """The same in DuckDB's SQL. list_concat takes a missing list for an empty one."""
    ids = ", ".join(f"(hash(coalesce({name}, '')) % {BUCKETS})::BIGINT AS {name}" for name in IDS)
    hashed = f"list_transform({DUCKDB_TOKENS}, lambda word: (hash(word) % {BUCKETS})::BIGINT)"
    return f"SELECT coalesce({hashed}, []) AS overlap, {ids} FROM log"


def differing_tokens(source: Path) -> list[str]:
    """The row groups in which the tokens of Polars or DuckDB differ from Headrace's, ignoring order."""
    import duckdb
    import polars as pl

    plan = compile_plan({"tokens": _tokens().node})
    differing = []
    for group in range(pq.read_metadata(source).num_row_groups):
        log = pq.ParquetFile(source).read_row_group(group)
        mine = pl.DataFrame({"tokens": pl.from_arrow(plan.run(log).columns["tokens"])})
        with duckdb.connect() as connection:
            connection.register("log", log)
            sql = connection.sql(f"SELECT coalesce({DUCKDB_TOKENS}, []) AS tokens FROM log").to_arrow_table()
        others = {"polars": pl.from_arrow(log).select(polars_tokens().alias("tokens")), "duckdb": pl.from_arrow(sql)}
        for name, other in others.items():
            if not mine.select(pl.col("tokens").list.sort()).equals(other.select(pl.col("tokens").list.sort())):
                differing.append(f"{name}'s tokens of row group {group}")
    return differing


SIDES = {
    "headrace": lambda source, target: run_in_process(components(), source, target),
    "polars": partial(run_polars, polars_expressions),
    "duckdb": lambda source, target: run_duckdb(duckdb_query(), source, target),
    "headrace on Beam": lambda source, target: run_on_beam(components(), source, target),
    "tf.Transform": partial(run_tft, preprocess, (*TEXTS, *IDS)),
}
#: The sides that are compared: in process, and on Beam's DirectRunner.
COMPARED = (("headrace", "polars", "duckdb"), ("headrace on Beam", "tf.Transform"))


def main() -> int:
    """Generate, measure, compare; the exit status is 1 if any side's output differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=list(SIDES))
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, small = folder / "log.parquet", folder / "small.parquet"
        generate(source, options.rows)
        generate(small, min(options.rows, 20_000))
        print(f"{options.rows:,} rows, {source.stat().st_size / 1e6:.0f} MB of Parquet; {machine()}, {THREADS} threads")
        sides = [
            Side(
                side,
                partial(run_cleanly, run, source, folder / side),
                partial(run_cleanly, run, small, folder / f"{side}-small"),
            )
            for side, run in SIDES.items()
            if side in options.sides
        ]
        measured = measure(sides, options.rounds)
        for names in COMPARED:
            if chosen := [side for side in measured if side.name in names]:
                print("\n" + table(chosen, options.rows))
        differing = _differing(folder, source, options.sides)
        print("\nequal: " + ("no: " + ", ".join(differing) if differing else "yes"))
    return 1 if differing else 0


def _differing(folder: Path, source: Path, sides: list[str]) -> list[str]:
    if "headrace" not in sides:
        return []
    ours = read(folder / "headrace")
    differing = differing_tokens(source)
    if "headrace on Beam" in sides:
        parts = [read(path) for path in sorted((folder / "headrace on Beam").iterdir())]
        differing += [] if pa.concat_tables(parts).equals(ours) else ["headrace on Beam"]
    if "tf.Transform" in sides:
        differing += [f"tf.Transform's {name}" for name in differing_from_tft(ours, folder / "tf.Transform")]
    for side in {"polars", "duckdb"} & set(sides):
        differing += [f"{side}'s {what}" for what in differing_counts(ours, read(folder / side))]
    return differing


if __name__ == "__main__":
    sys.exit(main())
