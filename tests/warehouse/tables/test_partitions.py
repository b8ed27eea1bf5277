from __future__ import annotations

from datetime import UTC, datetime

import pytest

from transforms.errors import DataError
from warehouse.tables.partitions import partition_range


def test_an_hour_and_a_day() -> None:
    hour = partition_range("date=2026-02-28/hour=23")
    assert hour == (datetime(2026, 2, 28, 23, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC))
    assert partition_range("date=2026-12-31") == (datetime(2026, 12, 31, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "key",
    ["", "part", "date=2026-02-30", "date=2026-1-1", "date=2026-01-01/hour=24", "date=2026-01-01/x", "hour=01",
     "date=2026-01-01/hour=01/extra", "date=2026-01-01/hour=1x", "date=9999-12-31", "date=9999-12-31/hour=23"],
)  # fmt: skip
def test_other_folders_are_refused(key: str) -> None:
    with pytest.raises(DataError) as caught:
        partition_range(key, "/data/file")
    assert caught.value.value == key
    assert caught.value.where == "/data/file"
