"""The files and columns of the benchmarks of reading: the search log, and films."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import benchmarks.movielens_throughput as films
import benchmarks.transform_throughput as ads
from benchmarks.support.search_log import generate
from transforms.graphs.graph import Node


def parse_options(description: str | None) -> argparse.Namespace:
    """The options ``rows`` and ``log``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--log", type=Path, help="the joined MovieLens log; default: a generated one")
    return parser.parse_args()


def write_files(folder: Path, rows: int, log: Path | None) -> Iterator[tuple[str, Path, dict[str, Node]]]:
    """Write each Parquet file; its name, path and the components over it."""
    source = folder / "ads.parquet"
    generate(source, rows)
    yield "ads", source, ads.components()
    source = folder / "films.parquet"
    films.from_log(log, source) if log else films.generate(source, rows)
    yield "films", source, films.components()
