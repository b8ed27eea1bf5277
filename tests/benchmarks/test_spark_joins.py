"""The log of comparisons with other systems that join, and the comparison with Spark SQL."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.spark_joins import FORMS, compare, different, join, values_of
from benchmarks.support.keyed_log import LogSize, write_log
from benchmarks.support.spark_environment import FOLDER

SIZE = LogSize(events=500, rows=2_000, keys=20)
PYTHON = FOLDER / "bin" / "python"


@pytest.mark.parametrize(("skew", "least", "most"), [(0.0, 0.0, 0.1), (1.2, 0.15, 1.0)])
def test_a_skewed_log_has_a_key_with_many_rows(tmp_path, skew, least, most):
    write_log(tmp_path, LogSize(500, 2_000, 20, skew), np.random.default_rng(3))
    rows = pq.read_table(tmp_path / "rows.parquet")
    share = np.bincount(rows["key"].to_numpy()).max() / rows.num_rows
    assert least < share < most


def test_times_of_a_log_are_different_and_in_order(tmp_path):
    write_log(tmp_path, SIZE, np.random.default_rng(3), event_time="at")
    for name, time in (("events", "at"), ("rows", "time")):
        times = pq.read_table(tmp_path / f"{name}.parquet")[time].cast("int64").to_numpy()
        assert (np.diff(times) > 0).all()
        assert (times % 1_000 == 0).all()


def test_equal_seeds_make_equal_logs(tmp_path):
    for name in ("one", "other"):
        write_log(tmp_path / name, SIZE, np.random.default_rng(3))
    for file in ("events.parquet", "rows.parquet"):
        assert pq.read_table(tmp_path / "one" / file).equals(pq.read_table(tmp_path / "other" / file))


@pytest.mark.medium
def test_a_hop_lengthens_windows_only(tmp_path):
    write_log(tmp_path, SIZE, np.random.default_rng(3))
    join(tmp_path, "1h")
    hopping = values_of(tmp_path / "headrace.parquet")
    join(tmp_path, None)
    exact = values_of(tmp_path / "headrace.parquet")
    changed = different(exact, hopping)
    assert changed["count_1d"] > 0
    assert all(one <= other for one, other in zip(exact["count_1d"], hopping["count_1d"], strict=True))
    assert different(exact, exact) == dict.fromkeys(changed, 0)


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="Spark is missing: make bench-spark installs it in .pyspark")
def test_spark_has_equal_values(capsys):
    compare(SIZE, tuple(FORMS), 1, 3)
    assert capsys.readouterr().out.count("equal values: 4,000 of 4,000") == len(FORMS)
