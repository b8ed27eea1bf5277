"""Real clicks through the warehouse equal values that are computed directly."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import transforms.expressions.expression as hr
from tests.warehouse.scenes import work
from transforms.expressions.model import Model
from transforms.operators.farmhash import fingerprint64
from warehouse import Warehouse, read_fragment, read_solution, register_table, submit_model


def test_three_hours_of_clicks(warehouse: Warehouse, shared_data: Path, tmp_path: Path) -> None:
    hours = [pyarrow.csv.read_csv(shared_data / f"globo/clicks_hour_{hour:03d}.csv.gz") for hour in range(3)]
    for hour, table in enumerate(hours):
        folder = tmp_path / f"log/date=2017-10-01/hour={hour:02d}"
        folder.mkdir(parents=True)
        pq.write_table(table, folder / "part.parquet", row_group_size=5000)
    found = register_table(warehouse, "clicks", str(tmp_path / "log"))
    assert found.rows == sum(table.num_rows for table in hours)
    model = Model("clicks", client="news", label="click_environment", table="clicks")
    model.input("article", hr.int64("click_article_id").hash_buckets(10_000))
    model.input("region", hr.int64("click_region"))
    submit_model(warehouse, model)
    assert work(warehouse) == 3
    solution = read_solution(warehouse, "clicks")
    fragments = [fragment for part in solution.partitions for fragment in part.fragments]
    read = pa.concat_tables([read_fragment(warehouse.storage, solution, fragment) for fragment in fragments])
    raw = pa.concat_tables(hours)
    articles = raw.column("click_article_id").to_pylist()
    assert read.column("article").to_pylist() == [fingerprint64(str(article).encode()) % 10_000 for article in articles]
    assert read.column("region").equals(raw.column("click_region"))
