"""``headrace evaluate``: the figures of all events and by the values of columns, against those of the predictions of each event."""

from __future__ import annotations

import math
import re

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from trainer.model.metrics import auc, calibration, normalized_entropy

TESTED = ("--start", "2026-03-02T02:00")


def scored(cli, tmp_path, *columns):
    """The raw columns, the label and the prediction of each event of the tested partitions."""
    cli("predict", "first", *TESTED, "--output", tmp_path / "scores", "--columns", ",".join(["clicked", *columns]))
    files = sorted((tmp_path / "scores").rglob("*.parquet"))
    return pa.concat_tables([pq.read_table(file, partitioning=None) for file in files]).to_pandas()


def figures_of(events):
    labels, chances = events["clicked"].to_numpy(), events["prediction"].to_numpy()
    return auc(labels, chances), normalized_entropy(labels, chances), calibration(labels, chances)


def test_figures_by_a_column_are_those_of_its_events(trained_once, tmp_path):
    ids = (
        ds.dataset(tmp_path / "log", partitioning=None)
        .to_table(columns=["event_id", "time"])
        .sort_by("time")["event_id"]
        .to_pylist()
    )
    trained_once("table", "delete", "log", "--where", f"event_id={ids[-3]}", "--why", "asked for")
    events = scored(trained_once, tmp_path, "position", "user_id")
    found = trained_once(
        "evaluate", "first", *TESTED, "--by", "position", "--by", "user_id", "--most", "3", "--json"
    ).json
    assert found["events"] == len(events)
    assert (found["auc"], found["normalized_entropy"], found["calibration"]) == pytest.approx(
        figures_of(events), rel=1e-4
    )
    assert (found["partitions"], found["trained_partitions"]) == (2, 0)
    by_position, by_user = found["by"]
    for column, one in (("position", by_position), ("user_id", by_user)):
        groups = dict(list(events.groupby(column)))
        assert one["values"] == len(groups)
        sizes = sorted(map(len, groups.values()), reverse=True)
        assert [row["events"] for row in one["segments"]] == sizes[:3]
        for row in one["segments"]:
            own = figures_of(groups[int(row["value"])])
            shown = [row["auc"], row["normalized_entropy"], row["calibration"]]
            assert [math.nan if value is None else value for value in shown] == pytest.approx(
                own, rel=1e-3, nan_ok=True
            )
        assert one["others"]["events"] == sum(sizes[3:])
        areas = [(figures_of(own)[0], len(own)) for own in groups.values() if 0 < own["clicked"].sum() < len(own)]
        mean = np.average([area for area, _ in areas], weights=[size for _, size in areas])
        assert one["grouped_auc"] == pytest.approx(mean, rel=1e-6)


def test_the_screen_says_what_is_unseen(trained_once):
    shown = trained_once("evaluate", "first", *TESTED, "--by", "position").out
    assert "which this run has not trained" in shown
    assert re.search(r"AUC 0\.\d{4} ± 0\.\d{4}", shown)
    assert re.search(r"by position, \d+ values", shown)
    assert "inside the values of position: 0." in shown
    some = trained_once("evaluate", "first", "--start", "2026-03-02T01:00").out
    assert "1 of which this run has trained: unseen events are worse" in some


def test_bad_input_gives_one_error(trained_once):
    for options, status, text in (
        (("--by", "postion"), 2, "postion"),
        (("--most", "0"), 2, "an option must be in its range"),
        (("--run-dir", "none"), 4, "must hold a checkpoint"),
        (("--by", "query", "--start", "soon"), 2, "--start"),
    ):
        answer = trained_once("evaluate", "first", *options, status=status)
        assert text in answer.err
        assert not answer.out
