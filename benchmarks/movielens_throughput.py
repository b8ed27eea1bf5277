"""Throughput of the transforms on a log of films: tokens and 2-grams of titles, genres, users, crosses, all hashed.

    python -m benchmarks.movielens_throughput [--log ml1m_joined.tsv.gz] [--rounds R]

``--log`` is MovieLens-1M as tab-separated lines with a header: split, user_id, seq, gender, age, occupation, zip, movie_id,
title, genres (``A|B|C``). Without it a log of the same size and shape is generated. Every side reads the same Parquet
file and writes all columns as Arrow files; they are compared as in transform_throughput.py.
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

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.support.harness import THREADS, Side, machine, measure, run_cleanly, table
from benchmarks.support.ours import run_in_process, run_on_beam
from benchmarks.support.rivals import differing_counts, differing_from_tft, read, run_duckdb, run_polars, run_tft
from transforms.expressions.expression import cross, text
from transforms.graphs.graph import Node

if TYPE_CHECKING:
    import polars as pl

BUCKETS = 1_000_000
COLUMNS = ("user_id", "gender", "age", "occupation", "zip", "movie_id", "title", "genres")
IDS = ("user_id", "gender", "age", "occupation", "zip", "movie_id")
CROSSES = {"who": ("gender", "age", "occupation"), "who_saw": ("gender", "age", "movie_id")}
GROUP_ROWS = 131_072


def from_log(log: Path, target: Path) -> None:
    """Write the log as Parquet, every column as text."""
    options = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, pa.string()), include_columns=COLUMNS)
    parse = pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False)
    with pa.input_stream(str(log), compression="gzip" if log.suffix == ".gz" else None) as lines:
        pq.write_table(
            pyarrow.csv.read_csv(lines, parse_options=parse, convert_options=options), target, row_group_size=GROUP_ROWS
        )


def generate(target: Path, rows: int, seed: int = 20) -> None:
    """Write a log of that shape: 3,700 films of one to six words and one to four genres, 6,000 users."""
    source = np.random.default_rng(seed)
    words = [np.base_repr(i * 7919 + 40, 36).capitalize() for i in range(5_000)]
    genres = [f"Genre{i}" for i in range(18)]
    titles = [" ".join(source.choice(words, source.integers(1, 7))) + f" ({1920 + i % 80})" for i in range(3_700)]
    of_film = ["|".join(source.choice(genres, source.integers(1, 5), replace=False)) for _ in titles]
    film = np.minimum(source.zipf(1.2, rows) - 1, len(titles) - 1)
    user = np.sort(source.integers(0, 6_000, rows))
    columns = {
        "user_id": user,
        "gender": np.array(["F", "M"])[user % 2],
        "age": user * 7 % 56,
        "occupation": user * 11 % 21,
        "zip": user * 7919 % 99_999,
        "movie_id": film,
        "title": pa.array(titles).take(pa.array(film)),
        "genres": pa.array(of_film).take(pa.array(film)),
    }
    log = pa.table({name: pa.array(values).cast(pa.string()) for name, values in columns.items()})
    pq.write_table(log, target, row_group_size=GROUP_ROWS)


def components() -> dict[str, Node]:
    """The benchmark's model inputs."""
    words = text("title").unigrams()
    inputs = {
        "words": words.hash_buckets(BUCKETS),
        "pairs": words.ngrams(2).hash_buckets(BUCKETS),
        "genres": text("genres").split("|").hash_buckets(BUCKETS),
    }
    inputs |= {name: text(name).hash_buckets(BUCKETS) for name in IDS}
    inputs |= {name: cross(*map(text, parts), buckets=BUCKETS) for name, parts in CROSSES.items()}
    return {name: expr.node for name, expr in inputs.items()}


def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
    """The same as a preprocessing_fn of tf.Transform."""
    import tensorflow as tf
    import tensorflow_transform as tft

    words = tf.strings.split(inputs["title"])
    pairs = tf.strings.ngrams(words, 2, separator=" ")
    genres = tf.strings.split(inputs["genres"], "|")
    ragged = {"words": words, "pairs": pairs, "genres": genres}
    outputs = {name: tft.hash_strings(value.to_sparse(), BUCKETS) for name, value in ragged.items()}
    outputs |= {name: tft.hash_strings(inputs[name], BUCKETS) for name in IDS}
    for name, parts in CROSSES.items():
        crossed = tf.sparse.cross_hashed([inputs[part][:, tf.newaxis] for part in parts], num_buckets=BUCKETS)
        outputs[name] = crossed.values
    return outputs


def polars_expressions() -> list[pl.Expr]:
    """The same in Polars."""
    import polars as pl

    words = pl.col("title").str.split(" ")
    pairs = words.list.eval(pl.element() + " " + pl.element().shift(-1)).list.drop_nulls()
    lists = {"words": words, "pairs": pairs, "genres": pl.col("genres").str.split("|")}
    hashed = [value.list.eval(pl.element().hash() % BUCKETS).alias(name) for name, value in lists.items()]
    hashed += [(pl.col(name).hash() % BUCKETS).alias(name) for name in IDS]
    crosses = {name: pl.concat_str(parts, separator="\x1f") for name, parts in CROSSES.items()}
    return hashed + [(value.hash() % BUCKETS).alias(name) for name, value in crosses.items()]


def duckdb_query() -> str:
    """The same in DuckDB's SQL."""
    words = "string_split(title, ' ')"
    pairs = f"list_transform(range(1, len({words})), lambda i: {words}[i] || ' ' || {words}[i + 1])"
    lists = {"words": words, "pairs": pairs, "genres": "string_split(genres, '|')"}
    columns = [
        f"list_transform({value}, lambda it: (hash(it) % {BUCKETS})::BIGINT) AS {name}" for name, value in lists.items()
    ]
    columns += [f"(hash({name}) % {BUCKETS})::BIGINT AS {name}" for name in IDS]
    columns += [f"(hash({', '.join(parts)}) % {BUCKETS})::BIGINT AS {name}" for name, parts in CROSSES.items()]
    return f"SELECT {', '.join(columns)} FROM log"


SIDES = {
    "headrace": lambda source, target: run_in_process(components(), source, target),
    "polars": partial(run_polars, polars_expressions),
    "duckdb": lambda source, target: run_duckdb(duckdb_query(), source, target),
    "headrace on Beam": lambda source, target: run_on_beam(components(), source, target),
    "tf.Transform": partial(run_tft, preprocess, COLUMNS),
}
COMPARED = (("headrace", "polars", "duckdb"), ("headrace on Beam", "tf.Transform"))


def main() -> int:
    """Prepare, measure, compare; the exit status is 1 if any side's output differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the generated log")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, small = folder / "log.parquet", folder / "small.parquet"
        from_log(options.log, source) if options.log else generate(source, options.rows)
        rows = pq.read_metadata(source).num_rows
        pq.write_table(pq.read_table(source).slice(0, 20_000), small)
        print(f"{rows:,} rows of {'MovieLens-1M' if options.log else 'a generated log'}, "
              f"{source.stat().st_size / 1e6:.0f} MB of Parquet; {machine()}, {THREADS} threads")  # fmt: skip
        sides = [
            Side(
                side,
                partial(run_cleanly, run, source, folder / side),
                partial(run_cleanly, run, small, folder / f"{side}-small"),
            )
            for side, run in SIDES.items()
        ]
        measured = measure(sides, options.rounds)
        for names in COMPARED:
            print("\n" + table([side for side in measured if side.name in names], rows))
        ours = read(folder / "headrace")
        parts = [read(path) for path in sorted((folder / "headrace on Beam").iterdir())]
        differing = [] if pa.concat_tables(parts).equals(ours) else ["headrace on Beam"]
        differing += [f"tf.Transform's {column}" for column in differing_from_tft(ours, folder / "tf.Transform")]
        for side in ("polars", "duckdb"):
            differing += [f"{side}'s {what}" for what in differing_counts(ours, read(folder / side))]
        print("\nequal: " + ("no: " + ", ".join(differing) if differing else "yes"))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
