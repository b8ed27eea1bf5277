"""``headrace checks``: the newest partitions against those before, from stored sketches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families

import headrace as hr
from headrace.checks import partition_sketches
from transforms.errors import DataError

DAYS = 9
FIRST = datetime(2026, 3, 1, tzinfo=UTC)


def write_day(folder, day, *, price=1.0, empty=0.02, name="a"):
    random, rows = np.random.default_rng([day, ord(name)]), 400
    start = FIRST + timedelta(days=day)
    frame = pl.DataFrame({
        "time": [start + timedelta(seconds=int(one)) for one in sorted(random.integers(0, 3600, rows))],
        "price": random.lognormal(price, 1, rows).astype(np.float32),
        "query": [None if random.random() < empty else f"word{random.integers(0, 200)}" for _ in range(rows)],
        "clicked": random.random(rows) < 0.1,
    })  # fmt: skip
    place = folder / f"date={start:%Y-%m-%d}" / "hour=00"
    place.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(place / f"{name}.parquet")


def model(**expect):
    made = hr.Model("ctr", client="search", label="clicked", table="log")
    made.input("price", hr.float32("price").log1p(), expect=expect.get("price"))
    made.input("words", hr.text("query").unigrams().hash_buckets(1000), expect=expect.get("words"))
    return made


@pytest.fixture
def home(tmp_path, cli):
    for day in range(DAYS):
        write_day(tmp_path / "logs", day)
    cli("table", "add", "log", tmp_path / "logs", "--time-column", "time")
    with hr.open(tmp_path / "home") as w:
        w.submit(model())
        yield w


def test_an_unchanged_log_has_no_finding_and_status_0(cli, home):
    found = cli("checks", "run", "ctr", "--json").json
    assert [one["input"] for one in found["inputs"]] == ["price", "words", "label"]
    assert all(one["findings"] == [] for one in found["inputs"])
    assert found["partitions_before"] == 7
    assert "no input is above its limits" in cli("checks", "run", "ctr").out


def test_ranges_of_few_events_say_that_they_are_too_few(cli, home):
    assert not cli("checks", "run", "ctr", "--ks", "0.2", "--json").json["has_too_few"]
    strict = cli("checks", "run", "ctr", "--ks", "0.01")
    assert "400 events against 2,800 are too few" in strict.out
    assert "headrace table show log" in strict.out


def test_a_changed_day_is_found_with_status_3_and_written_for_prometheus(cli, home, tmp_path):
    write_day(tmp_path / "logs", DAYS, price=2.0, empty=0.3)
    cli("table", "add", "log", tmp_path / "logs")
    said = cli("checks", "run", "ctr", "--metrics", tmp_path / "m.prom", status=DataError.exit_status).out
    assert "population stability index" in said
    assert "of events are empty" in said
    families = {one.name: one for one in text_string_to_metric_families((tmp_path / "m.prom").read_text())}
    found = {
        (one.labels["model"], one.labels["input"]): one.value for one in families["headrace_checks_findings"].samples
    }
    assert found["ctr", "price"] > 0
    assert found["ctr", "label"] == 0
    assert cli("checks", "run", "ctr", "--end", f"{FIRST + timedelta(days=DAYS):%Y-%m-%d}").status == 0


def test_what_is_known_is_not_read_again_by_any_model(home, tmp_path, monkeypatch):
    home.drift("ctr")
    other = hr.Model("other", client="ads", label="clicked", table="log")
    other.input("cost", hr.float32("price").log1p())
    home.submit(other)
    made = []
    monkeypatch.setattr(partition_sketches, "_made", lambda *given: made.append(given))
    assert [one.input for one in home.drift("other").inputs] == ["cost", "label"]
    assert made == []
    home.drift("ctr")
    assert made == []


def test_late_rows_and_deletes_are_sketched_again_and_others_not(cli, home, tmp_path, monkeypatch):
    before = home.drift("ctr")
    make, made = partition_sketches._made, []
    monkeypatch.setattr(partition_sketches, "_made", lambda *given: made.append(given) or make(*given))
    write_day(tmp_path / "logs", DAYS - 1, name="b")
    cli("table", "add", "log", tmp_path / "logs")
    after = home.drift("ctr")
    assert len(made) == 1
    assert after.inputs[0].rows == 2 * before.inputs[0].rows
    cli("table", "delete", "log", "--where", "query=word7")
    deleted = home.drift("ctr")
    assert deleted.inputs[0].rows < after.inputs[0].rows


def test_expectations_are_those_of_the_newest_submission_without_a_new_version(home):
    assert not home.drift("ctr").failed
    home.submit(model(price=hr.between(0, 0.5), words=hr.Expect(empty_share=0.0)))
    found = home.drift("ctr")
    assert found.version == 1
    assert {one.input for one in found.failed} == {"price", "words"}
    assert all(each.is_expected for one in found.failed for each in one.findings)
    home.submit(model())
    assert not home.drift("ctr").failed


def test_the_values_of_an_input_by_partition(cli, home):
    label = cli("checks", "show", "ctr", "label", "--json").json
    assert len(label["partitions"]) == DAYS
    assert all(0.03 < one["true_share"] < 0.2 for one in label["partitions"])
    price = cli("checks", "show", "ctr", "price", "--start", "2026-03-08").out
    assert price.count("date=2026-03-0") == 2
    assert "words" in cli("checks", "show", "ctr", "wrods", status=2).err


def test_a_range_without_partitions_says_which(cli, home):
    said = cli("checks", "run", "ctr", "--against", "30m", status=2).err
    assert "the range before must hold partitions" in said
    assert "the range must hold partitions" in cli("checks", "run", "ctr", "--end", "2020-01-01", status=2).err
    assert "*.prom" in cli("checks", "run", "ctr", "--metrics", "m.txt", status=2).err
