"""Full passes over real clicks: ids equal a plain Python count, and an added hour reads one hour."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import transforms.expressions.expression as hr
from pipelines.analysis.analyze import analyze_model
from tests.pipelines.scenes import open_home
from transforms.expressions.model import Model
from transforms.operators.farmhash import fingerprint64
from transforms.ranges import between
from warehouse.matching.solve import read_solution
from warehouse.matching.submit import submit_model
from warehouse.reading.reader import read_fragment
from warehouse.tables.register import register_table

OOV_BUCKETS = 100


def model(hours: int) -> Model:
    made = Model("clicks", client="news", label="click_environment", table="clicks")
    over = between("2017-10-01T00:00", f"2017-10-01T{hours:02d}:00")
    made.input("article", hr.int64("click_article_id").vocabulary_ids(top_k=200, oov_buckets=OOV_BUCKETS, over=over))
    return made


def test_ids_of_clicked_articles(shared_data: Path, tmp_path: Path) -> None:
    hours = [pyarrow.csv.read_csv(shared_data / f"globo/clicks_hour_{hour:03d}.csv.gz") for hour in range(4)]
    for hour, table in enumerate(hours):
        folder = tmp_path / f"log/date=2017-10-01/hour={hour:02d}"
        folder.mkdir(parents=True)
        pq.write_table(table, folder / "part.parquet", row_group_size=5000)
    with open_home(tmp_path / "home") as warehouse:
        register_table(warehouse, "clicks", str(tmp_path / "log"))
        assert [(one.partitions, one.partitions_read) for one in analyze_model(warehouse, model(2))] == [(2, 2)]
        assert [(one.partitions, one.partitions_read) for one in analyze_model(warehouse, model(3))] == [(3, 1)]
        solution = read_solution(warehouse, submit_model(warehouse, model(3)).model)
        fragments = [fragment for part in solution.partitions for fragment in part.fragments]
        got = pa.concat_tables([read_fragment(warehouse.storage, solution, fragment) for fragment in fragments])
    clicks = [article for table in hours for article in table["click_article_id"].to_pylist()]
    counted = Counter(str(article) for table in hours[:3] for article in table["click_article_id"].to_pylist())
    by_rank = sorted(counted.items(), key=lambda pair: (pair[1], pair[0].encode()), reverse=True)[:200]
    ids = {term: position for position, (term, _) in enumerate(by_rank)}
    expected = [ids.get(str(article), 200 + fingerprint64(str(article).encode()) % OOV_BUCKETS) for article in clicks]
    assert got["article"].to_pylist() == expected
