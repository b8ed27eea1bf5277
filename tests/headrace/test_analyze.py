"""``headrace analyze`` from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

MODELS = """
import headrace as hr

day = hr.between("{day}", "{day}T02:00")
plain = hr.Model("plain", client="search", label="clicked", table="log")
plain.input("user", hr.int64("user_id").hash_buckets(500))

model = hr.Model("ctr", client="search", label="clicked", table="log")
model.input("words", hr.text("query").lower().unigrams().vocabulary_ids(top_k=50, oov_buckets=4, over=day))
model.input("price", hr.float32("price").z_score(over=day))
"""


@pytest.fixture
def model_file(cli: Callable[..., Any], small_log: Path, tmp_path: Path) -> Path:
    cli("table", "add", "log", small_log)
    first = min(folder.name for folder in small_log.iterdir())
    file = tmp_path / "models.py"
    file.write_text(MODELS.format(day=first.removeprefix("date=")), encoding="utf-8")
    return file


@pytest.mark.slow
def test_submit_names_what_is_missing_and_analyze_makes_it_once(cli: Callable[..., Any], model_file: Path) -> None:
    refused = cli("model", "submit", model_file, status=2)
    for said in ("vocabulary_ids(unigrams(lower(query)))", "standardize_over(price)", "headrace analyze"):
        assert said in refused.err
    assert cli("model", "ls", "--json").json["models"] == [], "a file is submitted as a whole or not at all"
    made = cli("analyze", model_file, "--json").json["analyses"]
    assert [(one["model"], one["operator"], one["partitions"], one["partitions_read"]) for one in made] == [
        ("ctr", "vocabulary_ids", 2, 2),
        ("ctr", "standardize_over", 2, 2),
    ]
    assert made[0]["size"] == 50
    assert "nothing to analyze" in cli("analyze", model_file).out
    cli("model", "submit", model_file)
    shown = cli("model", "show", "ctr").out
    assert "vocabulary_lookup(unigrams(lower(query)), artifact" in shown
    assert "buckets=54" in shown
    assert "standardize(price, mean=" in shown
    cli("work", "--until-idle")
    assert all(row["hit"] for row in cli("model", "explain", "ctr", "--json").json["decisions"])
    assert "artifact" in cli("graphs", "ls").out


def test_submit_analyzes_when_asked(cli: Callable[..., Any], model_file: Path) -> None:
    submitted = cli("model", "submit", model_file, "--analyze", "--json").json["models"]
    assert [row["model"] for row in submitted] == ["plain", "ctr"]
    table = cli("analyze", model_file, "--model", "ctr").out
    assert "nothing to analyze" in table
    held = cli("table", "column", "log", "query", "--json").json["files"]
    assert sorted(one["kind"] for one in held if one["kind"] != "files of the table") == [
        "artifacts",
        "contributions",
        "contributions",
    ]
    assert "artifacts" not in cli("table", "column", "log", "ad_title").out


def test_a_range_outside_the_table_is_one_clear_error(cli: Callable[..., Any], model_file: Path) -> None:
    text = model_file.read_text(encoding="utf-8")
    model_file.write_text(
        text.replace('hr.between("', 'hr.between("1999-01-01", "1999-01-02") or ("'), encoding="utf-8"
    )
    for command in (("analyze",), ("model", "submit")):
        refused = cli(*command, model_file, status=2)
        assert "no partition starts in the range" in refused.err


def add_late_rows(cli: Callable[..., Any], log: Path) -> None:
    """A second file in the first partition: half of the first one's rows again, at other prices."""
    folder = min(folder for folder in log.iterdir() if folder.is_dir())
    file = min(folder.glob("**/*.parquet"))
    rows = pq.read_table(file, partitioning=None)
    rows = rows.slice(0, rows.num_rows // 2)
    at = rows.schema.get_field_index("price")
    prices = pc.multiply(rows["price"], pa.scalar(2.0, pa.float32())).cast(pa.float32())
    pq.write_table(rows.set_column(at, "price", prices), file.with_name("late.parquet"))
    cli("table", "add", "log", log)


def test_late_rows_change_nothing_until_it_is_asked_for(
    cli: Callable[..., Any], model_file: Path, small_log: Path
) -> None:
    cli("model", "submit", model_file, "--analyze")
    first = cli("model", "show", "ctr", "--json").json
    assert [one["operator"] for one in first["analyses"]] == ["vocabulary_ids", "standardize_over"]
    assert first["analyses"][0]["artifact"][:12] in cli("model", "show", "ctr").out
    plan = cli("analyze", model_file, "--dry-run", "--json").json["plan"]
    assert [(one["state"], one["partitions_to_read"]) for one in plan] == [("unchanged", 0)] * 2

    add_late_rows(cli, small_log)
    (_, again) = cli("model", "submit", model_file, "--json").json["models"]
    assert (again["version"], again["unchanged"]) == (1, True)
    assert [one["rows_now"] > one["rows"] for one in again["pinned"]] == [True, True]
    said = cli("model", "submit", model_file).out
    assert "more rows now" in said
    assert "--analyze would analyze again" in said
    assert cli("model", "show", "ctr", "--json").json == first

    for command in (("analyze",), ("model", "submit", "--analyze")):
        planned = cli(*command, model_file, "--dry-run").out
        assert "1 of 2" in planned
        assert "pinned; the range has" in planned
        assert "nothing was read" in planned
    assert cli("model", "show", "ctr", "--json").json == first, "a dry run changes nothing"

    submitted = cli("model", "submit", model_file, "--analyze", "--json").json["models"][1]
    assert (submitted["version"], submitted["pinned"]) == (2, [])
    vocabulary, scale = submitted["analyzed"]
    assert vocabulary["rows_before"] < vocabulary["rows"]
    assert "mean" in scale["difference"]
    second = cli("model", "show", "ctr", "--json").json
    assert [one["rows"] for one in second["analyses"]] == [vocabulary["rows"], scale["rows"]]
    assert cli("model", "show", "ctr", "--version", 1, "--json").json["analyses"] == first["analyses"]
    cli("gc", "--yes")
    assert "damaged" not in cli("verify").out


def test_what_analyze_makes_is_what_the_next_submission_takes(
    cli: Callable[..., Any], model_file: Path, small_log: Path
) -> None:
    cli("model", "submit", model_file, "--analyze")
    add_late_rows(cli, small_log)
    changes = cli("analyze", model_file, "--json").json["changes"]
    assert [one["operator"] for one in changes] == ["standardize_over"] or len(changes) == 2
    assert cli("model", "show", "ctr", "--json").json["version"] == 1
    submitted = cli("model", "submit", model_file, "--json").json["models"]
    assert [(one["version"], one["pinned"]) for one in submitted] == [(1, []), (2, [])]
    assert cli("model", "submit", model_file, "--json").json["models"][1]["unchanged"]


def test_another_range_is_another_analysis(cli: Callable[..., Any], model_file: Path) -> None:
    cli("model", "submit", model_file, "--analyze")
    model_file.write_text(model_file.read_text(encoding="utf-8").replace("T02:00", "T01:00"), encoding="utf-8")
    refused = cli("model", "submit", model_file, status=2)
    assert "standardize_over(price)" in refused.err
