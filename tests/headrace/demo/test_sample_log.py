from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from tests.headrace.conftest import SMALL
from transforms.errors import InputError


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.parquet"))}


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_sample_log(tmp_path / name, replace(SMALL, seed=seed), late=False)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert files(tmp_path / "a") != files(tmp_path / "c")


def test_late_rows_are_the_missing_ones_in_their_own_hours(tmp_path):
    on_time = write_sample_log(tmp_path, SMALL, late=False)
    late = write_sample_log(tmp_path, SMALL, late=True)
    assert late.rows == late.late_rows > 0
    assert on_time.late_rows == 0
    table = pq.read_table(tmp_path, partitioning=None)
    assert table.num_rows == on_time.rows + late.rows
    assert pc.count_distinct(table["event_id"]).as_py() == table.num_rows
    for path in tmp_path.rglob("*.parquet"):
        hour = pc.unique(pc.hour(pq.read_table(path, columns=["time"], partitioning=None)["time"]))
        assert [f"hour={hour[0].as_py():02d}"] == [path.parent.name]


@pytest.mark.slow
def test_clicks_depend_on_the_features(tmp_path):
    write_sample_log(tmp_path, SampleLogConfig(hours=2, mean_rows_per_hour=20_000), late=False)
    table = pq.read_table(tmp_path, partitioning=None)
    clicked = table["clicked"].cast(pa.float64())

    def rate(mask):
        return pc.mean(clicked.filter(mask)).as_py()

    assert 0.02 < pc.mean(clicked).as_py() < 0.3
    assert rate(pc.equal(table["position"], 1)) > 1.3 * rate(pc.equal(table["position"], 4))
    assert rate(pc.less(table["price"], 10.0)) > rate(pc.greater(table["price"], 60.0))
    query_first = pc.utf8_lower(pc.list_element(pc.utf8_split_whitespace(table["query"]), 0))
    title = pc.utf8_lower(table["ad_title"])
    shared = pa.array([q in t.split() for q, t in zip(query_first.to_pylist(), title.to_pylist(), strict=True)])
    assert rate(shared) > 1.5 * rate(pc.invert(shared))


def test_numbers_have_nulls_and_the_vocabulary_drifts(tmp_path):
    write_sample_log(tmp_path, replace(SMALL, hours=30, vocabulary_words=8_000), late=False)
    table = pq.read_table(tmp_path, partitioning=None)
    assert table["price"].null_count > 0
    assert table["user_age"].null_count > 0
    words = {
        path.parent.parent.name + path.parent.name: set(" ".join(pq.read_table(path, partitioning=None)["ad_title"].to_pylist()).lower().split())
        for path in tmp_path.rglob("*.parquet")
    }  # fmt: skip
    hours = sorted(words)
    first, second, last = words[hours[0]], words[hours[1]], words[hours[-1]]
    assert len(first & last) < len(first & second)


@pytest.mark.parametrize("change", [{"hours": 0}, {"late_share": 1.0}, {"vocabulary_words": 10}, {"users": 0}])
def test_impossible_logs_are_refused(change):
    with pytest.raises(InputError):
        replace(SMALL, **change)
