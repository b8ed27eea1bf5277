"""Labels that arrive a day late: added by overlay, then trained."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainer.checkpoints.checkpoint import read_newest

pytest.importorskip("tensorflow")

MODEL = """
import headrace as hr

coupons = hr.Model("coupons", client="ads", table="coupons", label=hr.float32("spent") > 2.5)
coupons.input("area", hr.text("area").lower().hash_buckets(50))
coupons.input("discount", hr.int64("discount").fill_null(0) * 0.01)
"""
DAYS, ROWS = 3, 40


def day(number: int) -> str:
    return f"2011-07-{number + 1:02d}"


def events(number: int, rows: int = ROWS, first: int = 0) -> tuple[pa.Table, pa.Table]:
    """A day's coupons as they are shown, and what was spent, which is known on the day after."""
    rng = np.random.default_rng(100 * number + first)
    ids = np.arange(first, first + rows) + 1000 * number
    start = datetime.fromisoformat(day(number)).replace(tzinfo=UTC)
    discount = rng.integers(10, 90, rows)
    shown = pa.table(
        {
            "coupon": ids,
            "time": pa.array([start + timedelta(minutes=7 * k) for k in range(rows)], pa.timestamp("us", "UTC")),
            "area": rng.choice(["Ginza", "Shibuya", "Ueno"], rows),
            "discount": discount,
        }
    )
    return shown, pa.table({"coupon": ids, "spent": pa.array(discount / 20 + rng.normal(size=rows), pa.float32())})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    for number in range(DAYS):
        folder = tmp_path / "log" / f"date={day(number)}"
        folder.mkdir(parents=True)
        shown, spent = events(number)
        pq.write_table(shown, folder / "part.parquet")
        pq.write_table(spent, tmp_path / f"spent{number}.parquet")
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "options.json").write_text(json.dumps({"deterministic": False, "batch_rows": 16, "passes": 2}))
    return tmp_path


@pytest.fixture
def train(cli, log):
    def call(*arguments, **options):
        return cli(
            "train", "coupons", "--config", log / "options.json", "--run-dir", log / "run", *arguments, **options
        )

    return call


def overlay(cli, log, number):
    return cli("table", "overlay", "coupons", log / f"spent{number}.parquet", "--on", "coupon")


@pytest.mark.slow
def test_labels_that_come_a_day_later(cli, log, train):
    cli("table", "add", "coupons", log / "log", "--time-column", "time")
    error = cli("model", "submit", log / "model.py", status=2).err
    assert "model coupons, label" in error
    assert "spent" in error
    overlay(cli, log, 0)
    cli("model", "submit", log / "model.py")
    assert "greater(spent, 2.5)" in cli("model", "ls").out
    assert "greater(spent, 2.5)" in cli("model", "show", "coupons").out
    assert "greater(spent, 2.5)" in cli("model", "explain", "coupons").out

    first = train("--end", "2011-07-03", "--test-end", "2011-07-04").out
    assert "40 events are skipped; run the command again when the labels are there" in first
    assert "40 events, each exactly twice" in first
    assert "40 events of the test range have no label yet" in first
    assert train("--end", "2011-07-03", "--json").json["events_this_time"] == 0

    overlay(cli, log, 1)
    found = train("--end", "2011-07-03", "--json").json
    assert (found["unlabelled"], found["late"]["labels"], found["events_this_time"]) == (0, 40, 80)
    assert (found["exact"], found["counted"]) == (True, 80)

    late, spent = events(0, rows=5, first=500)
    pq.write_table(late, log / "late.parquet")
    pq.write_table(spent, log / "late_spent.parquet")
    cli("table", "append", "coupons", log / "late.parquet")
    assert "5 events are skipped" in train("--end", "2011-07-03").out
    cli("table", "overlay", "coupons", log / "late_spent.parquet", "--on", "coupon")
    assert "5 late events are trained now" in train("--end", "2011-07-03").out
    overlay(cli, log, 2)
    cli("table", "delete", "coupons", "--where", "coupon=3")
    last = train("--json").json
    assert (last["events_this_time"], last["counted"], last["exact"]) == (80, 3 * 40 + 5 - 1, True)
    assert last["late"]["deleted"] == 1
    read_newest(log / "run", on_skip=pytest.fail)


def correct(cli, log, number, rows=ROWS):
    """Correct what was spent on the first coupons of a day, so that their labels change."""
    spent = pq.read_table(log / f"spent{number}.parquet").slice(0, rows)
    flipped = pa.array([9.0 if value <= 2.5 else 0.0 for value in spent["spent"].to_pylist()], pa.float32())
    pq.write_table(spent.set_column(1, "spent", flipped), log / "fixed.parquet")
    cli("table", "fix", "coupons", log / "fixed.parquet", "--on", "coupon", "--why", "wrong currency")


@pytest.mark.slow
def test_corrected_labels_are_trained_again(cli, log, train):
    cli("table", "add", "coupons", log / "log", "--time-column", "time")
    for number in range(DAYS):
        overlay(cli, log, number)
    cli("model", "submit", log / "model.py")
    train("--end", "2011-07-03", "--train-changed-labels")
    correct(cli, log, 0)
    error = train("--end", "2011-07-03", status=2).err
    assert "train events again whose labels have changed: --train-changed-labels" in error
    report = train("--end", "2011-07-03", "--train-changed-labels").out
    assert "40 events are trained again with the label that has changed" in report
    assert "80 events, each exactly twice" in report
    assert train("--end", "2011-07-03").out.count("trained again") == 0
    correct(cli, log, 1, rows=1)
    found = train("--train-changed-labels", "--json").json
    assert (found["events_this_time"], found["late"]["relabelled"], found["exact"]) == (1 + 2 * 40, 1, True)
    run = log / "run"
    assert "recorded as trained" in cli("ckpt", "show", run).out
    assert cli("ckpt", "verify", run, "--json").json["torn"] == []
    newest = cli("ckpt", "ls", run, "--json").json["checkpoints"]
    change = cli("ckpt", "diff", run, newest[1]["epochs"], newest[0]["epochs"], "--json").json
    assert "labels" not in [one["name"] for one in change["arrays"]]
    (log / "options.json").write_text(json.dumps({"count_events": False}))
    assert "must count events" in train("--run-dir", log / "other", "--train-changed-labels", status=2).err


@pytest.mark.slow
def test_a_corrected_label_is_refused_until_it_is_accepted(cli, log, train):
    cli("table", "add", "coupons", log / "log", "--time-column", "time")
    for number in range(DAYS):
        overlay(cli, log, number)
    cli("model", "submit", log / "model.py")
    train("--end", "2011-07-03")
    correct(cli, log, 0)
    error = train(status=2).err
    assert "the label of trained events has changed" in error
    assert (
        "continue without training it again: --accept-changed; a run that begins with --train-changed-labels" in error
    )
    assert "the labels as trained were not recorded" in train("--train-changed-labels", status=2).err
    report = train("--accept-changed", "--json").json
    assert (report["events_this_time"], len(report["late"]["accepted"]), report["exact"]) == (80, 1, True)
    assert train("--json").json["events_this_time"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("written", "figures"),
    [
        ('hr.Model("coupons", client="ads", table="coupons", label="spent", task="regression")', "normalized_error"),
        ('hr.Model("coupons", client="ads", table="coupons", label=hr.int64("discount").bucketize([30, 60]), classes=3)',
         "accuracy"),
    ],
)  # fmt: skip
def test_other_tasks_train_and_test(cli, log, train, written, figures):
    (log / "model.py").write_text(MODEL.replace(MODEL.split(" = ")[1].split("\n")[0], written))
    cli("table", "add", "coupons", log / "log", "--time-column", "time")
    for number in range(DAYS):
        overlay(cli, log, number)
    cli("model", "submit", log / "model.py")
    found = train("--end", "2011-07-03", "--test-end", "2011-07-04", "--json").json
    assert found["test"]["events"] == 40
    assert found["test"][figures] is not None
    assert found["task"] in ("regression", "multiclass")
    assert train("--end", "2011-07-03", "--json").json["events_this_time"] == 0


def test_an_invalid_binary_label_is_an_error_before_training(cli, log, train):
    (log / "model.py").write_text(MODEL.replace('label=hr.float32("spent") > 2.5', 'label="discount"'))
    cli("table", "add", "coupons", log / "log", "--time-column", "time")
    cli("model", "submit", log / "model.py")
    error = train(status=3).err
    assert "a binary label must be 0 or 1, got others in 120 events of 3 fragments" in error
    assert 'task="multiclass", classes=n; or task="regression"' in error
    assert not (log / "run" / "checkpoints").exists()
