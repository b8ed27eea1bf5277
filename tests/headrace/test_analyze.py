"""``headrace analyze`` as its user meets it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def test_a_range_outside_the_table_is_one_clear_error(cli: Callable[..., Any], model_file: Path) -> None:
    text = model_file.read_text(encoding="utf-8")
    model_file.write_text(
        text.replace('hr.between("', 'hr.between("1999-01-01", "1999-01-02") or ("'), encoding="utf-8"
    )
    for command in (("analyze",), ("model", "submit")):
        refused = cli(*command, model_file, status=2)
        assert "no partition starts in the range" in refused.err
