from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.raw_bytes_read import CountingStorage, measure
from tests.warehouse.scenes import write_log
from warehouse.tables.parquet import read_whole


@pytest.mark.slow
def test_together_reads_what_a_plain_read_does(tmp_path: Path) -> None:
    found = measure(tmp_path, rows=800, components=12)
    assert found.together == found.plain >= found.chunks
    assert found.together_again == found.plain_again
    assert found.separate > 3 * found.plain
    assert found.ratio == 1.0


def test_what_is_read_twice_counts_twice(tmp_path: Path) -> None:
    path = str(write_log(tmp_path / "log", hours=1) / "date=2026-01-01" / "hour=00" / "part.parquet")
    storage = CountingStorage(str(tmp_path / "home"))
    table = read_whole(storage, path)
    once, again = storage.read_bytes_in_all, storage.bytes_again
    assert once - again <= Path(path).stat().st_size
    assert read_whole(storage, path).equals(table)
    assert (storage.read_bytes_in_all, storage.bytes_again) == (2 * once, once + again)
