"""``headrace model submit --dry-run`` shows what submitting would do, and changes nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.headrace.test_commands import check_golden
from warehouse.matching import submit as submitting


def _catalog(home: Path) -> dict[str, list[Any]]:
    (file,) = home.glob("*.db")
    with sqlite3.connect(file) as connection:
        tables = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
        return {name: sorted(map(repr, connection.execute(f"select * from {name}"))) for name in tables}


def _files(home: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file() and "catalog" not in path.name}


@pytest.fixture
def log(cli, small_log):
    cli("table", "add", "log", small_log, "--time-column", "time")
    return cli


def _counts(row: dict[str, Any]) -> dict[str, int]:
    names = ("hits", "shared", "queued", "failed", "computed", "dropped")
    return {name: sum(one[name] for one in row["inputs"]) for name in names}


def _submitted(row: dict[str, Any]) -> dict[str, int]:
    return {name: row[name] for name in ("hits", "shared", "queued", "failed", "computed", "dropped")}


def test_a_dry_run_shows_a_submission_and_changes_nothing(log, models_file, tmp_path):
    before, files = _catalog(tmp_path / "home"), _files(tmp_path / "home")
    planned = log("model", "submit", models_file, "--table", "log", "--dry-run", "--json").json["models"]
    assert _catalog(tmp_path / "home") == before
    assert _files(tmp_path / "home") == files

    done = log("model", "submit", models_file, "--table", "log", "--json").json["models"]
    assert [_counts(row) for row in planned] == [_submitted(row) for row in done]
    assert [(row["version"], row["unchanged"]) for row in planned] == [(1, False), (1, False)]
    assert planned[0]["queued_tasks"] == 12
    assert planned[0]["queued_secs"] > 0
    assert planned[1]["inputs"][0]["reasons"] == {
        "queued already: another input, or another copy of this data, needs the same values": 4
    }


def test_a_dry_run_of_a_changed_model_says_what_differs(log, models_file, tmp_path):
    log("model", "submit", models_file, "--table", "log")
    log("work", "--until-idle")
    text = models_file.read_text(encoding="utf-8")
    changed = tmp_path / "changed.py"
    changed.write_text(
        text.replace('hash_buckets(500)', 'hash_buckets(600)').replace('"price", hr', '"cost", hr').replace(", priority=priority", ", priority=7"),
        encoding="utf-8",
    )  # fmt: skip
    first, second = log("model", "submit", changed, "--table", "log", "--dry-run", "--json").json["models"]
    assert first["version"] == 2
    assert first["changes"] == ["priority: 10 -> 7", "input price is gone"]
    by_name = {one["input"]: one for one in first["inputs"]}
    assert by_name["user"]["changes"] == ["hash_buckets: buckets 600 instead of 500"]
    assert by_name["user"]["queued"] == 4
    assert (by_name["cost"]["changes"], by_name["cost"]["hits"]) == (["new"], 4)
    unchanged = log("model", "submit", models_file, "--table", "log", "--dry-run", "--json").json["models"]
    assert [row["unchanged"] for row in unchanged] == [True, True]
    assert second["queued_tasks"] == 0, "the first one queues the user's ids for both"


def test_the_screen_of_a_dry_run(log, models_file):
    check_golden("model_submit_dry_run", log("model", "submit", models_file, "--table", "log", "--dry-run").out)


def test_a_dry_run_names_the_analyses_that_are_missing(log, tmp_path):
    file = tmp_path / "full.py"
    file.write_text(
        "import headrace as hr\n"
        'made = hr.Model("full", client="search", label="clicked", table="log")\n'
        'over = hr.between("2026-03-02", "2026-03-03")\n'
        'made.input("word", hr.text("query").unigrams().vocabulary_ids(over=over, top_k=100))\n'
        'made.input("user", hr.int64("user_id").hash_buckets(500))\n',
        encoding="utf-8",
    )
    (row,) = log("model", "submit", file, "--dry-run", "--json").json["models"]
    assert len(row["missing_analyses"]) == 1
    assert row["missing_analyses"][0].startswith("vocabulary_ids(unigrams(query)) over ")
    assert [one["input"] for one in row["inputs"]] == ["user"]
    said = log("model", "submit", file, "--dry-run").out
    assert "would be refused: 1 full pass is missing" in said
    assert "next: headrace analyze" in said


def test_a_dry_run_refuses_what_submitting_refuses(log, models_file, tmp_path):
    log("model", "submit", models_file, "--table", "log")
    other = tmp_path / "other.py"
    other.write_text(models_file.read_text(encoding="utf-8").replace('"search"', '"other"'), encoding="utf-8")
    assert (
        "the one that the model belongs to"
        in log("model", "submit", other, "--table", "log", "--dry-run", status=2).err
    )
    assert "no such table" in log("model", "submit", models_file, "--table", "none", "--dry-run", status=4).err.lower()
    wrong = tmp_path / "wrong.py"
    wrong.write_text(models_file.read_text(encoding="utf-8").replace('"user_id"', '"user_idd"'), encoding="utf-8")
    assert "user_idd" in log("model", "submit", wrong, "--table", "log", "--dry-run", status=2).err
    assert (
        "polcy" in log("model", "submit", models_file, "--table", "log", "--policy", "polcy", "--dry-run", status=2).err
    )


def test_a_dry_run_of_many_blocks_says_the_same(log, models_file, monkeypatch):
    estimates = ("queued_secs", "queued_bytes")

    def planned():
        rows = log("model", "submit", models_file, "--table", "log", "--dry-run", "--json").json["models"]
        return [({k: v for k, v in row.items() if k not in estimates}, [row[k] for k in estimates]) for row in rows]

    whole = planned()
    monkeypatch.setattr(submitting, "_BLOCK_PAIRS", 3)
    for (row, sums), (other, of_blocks) in zip(planned(), whole, strict=True):
        assert row == other
        assert sums == pytest.approx(of_blocks)
