"""Damaged logs, Parquet files and schema files: no crash, only Headrace's errors, no other row's values."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.examples import scaled

KINDS = ("tsv", "csv", "jsonl", "wild_tsv", "wild_csv", "wild_jsonl", "escaped_tsv", "escaped_csv", "infer", "parquet",
         "schema")  # fmt: skip
FAST_SEEDS, ALL_SEEDS, BATCH_SEEDS = 40, 3000, 500
#: Logs whose schemas have every entry are read value by value, which takes its time.
WILD_SEEDS = 1000


def read_mutants(kind: str, first: int, count: int) -> dict[str, int]:
    """Read the mutants of these seeds in a child; how many were read, and how many refused."""
    command = [sys.executable, "-m", "tests.pipelines.ingest.import_mutants", kind, str(first), str(count)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = child.stdout.splitlines()
    assert child.returncode == 0, f"died at seed {lines[-1:]} with {child.returncode}: {child.stderr[-2000:]}"
    result = json.loads(lines[-1])
    assert result["problems"] == []
    outcomes: dict[str, int] = result["outcomes"]
    assert sum(outcomes.values()) == count
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_gives_equal_values_or_is_refused(kind: str) -> None:
    read_mutants(kind, 0, FAST_SEEDS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_damaged_files_give_equal_values_or_are_refused(kind: str) -> None:
    seeds = scaled(WILD_SEEDS if kind.startswith("wild") else ALL_SEEDS)
    seen = [read_mutants(kind, first, BATCH_SEEDS) for first in range(0, seeds, BATCH_SEEDS)]
    assert min(sum(one[outcome] for one in seen) for outcome in ("read", "refused")) > seeds // 50
