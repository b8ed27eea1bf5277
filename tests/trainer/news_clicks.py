"""The first clicks of three hours of a news site, and a model of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq

import headrace as hr
from headrace import Model
from tests.warehouse.scenes import FREE_READS
from warehouse import Warehouse, read_solution, register_table, submit_model
from warehouse.config import WarehouseConfig
from warehouse.solution.solution import ReadSolution


@contextmanager
def news_clicks(
    shared_data: Path, folder: Path, *, hour_rows: int, group_rows: int
) -> Iterator[tuple[Warehouse, ReadSolution]]:
    """A warehouse of so many clicks an hour, in row groups of ``group_rows``, and the solution of its model."""
    for hour in range(3):
        table = pyarrow.csv.read_csv(shared_data / f"globo/clicks_hour_{hour:03d}.csv.gz").slice(0, hour_rows)
        partition = folder / f"log/date=2017-10-01/hour={hour:02d}"
        partition.mkdir(parents=True)
        pq.write_table(table, partition / "part.parquet", row_group_size=group_rows)
    model = Model("clicks", client="news", label=hr.int64("click_deviceGroup") == 1, table="clicks")
    model.input("article", hr.int64("click_article_id").hash_buckets(5000))
    model.input("region", hr.int64("click_region").hash_buckets(64))
    model.input("referrer", hr.int64("click_referrer_type").cast("float32"))
    with Warehouse.open(WarehouseConfig(home=str(folder / "home"), rates=FREE_READS)) as opened:
        register_table(opened, "clicks", str(folder / "log"))
        submit_model(opened, model)
        yield opened, read_solution(opened, "clicks")
