"""The sizes of a table's fragments, of which a registration warns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.warehouse.scenes import write_partition
from warehouse import Warehouse, register_table
from warehouse.tables.fragment_sizes import FragmentSizes, fragment_sizes


@pytest.mark.parametrize(("rows", "median"), [((3,), 3), ((1, 4), 1), ((5, 1, 3), 3), ((4, 1, 3, 2), 2)])
def test_half_of_the_fragments_have_at_most_the_median(
    warehouse: Warehouse, tmp_path: Path, rows: tuple[int, ...], median: int
) -> None:
    for hour, count in enumerate(rows):
        write_partition(tmp_path / "log", hour, pa.table({"a": range(hour * 100, hour * 100 + count)}))
    register_table(warehouse, "log", str(tmp_path / "log"))
    with warehouse.catalog.read() as connection:
        assert fragment_sizes(connection, "log") == FragmentSizes(len(rows), median, are_hourly=True)
        assert fragment_sizes(connection, "other") == FragmentSizes(0, 0, are_hourly=False)
