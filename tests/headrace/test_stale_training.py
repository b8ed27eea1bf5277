"""``headrace train`` with late updates shows how many of them lookups missed."""

from __future__ import annotations

import json

import pytest

from headrace.demo.sample_log import write_sample_log
from tests.headrace.conftest import MODELS, SMALL, UNTRIED

pytest.importorskip("tensorflow")


@pytest.mark.slow
def test_a_run_shows_its_measured_staleness(cli, tmp_path, monkeypatch):
    write_sample_log(tmp_path / "log", SMALL, late=False)
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    options = {**UNTRIED, "deep": True, "linear": True, "batch_rows": 64, "staleness": 3}
    (tmp_path / "training.json").write_text(json.dumps(options), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    cli("table", "add", "log", "log", "--time-column", "time")
    cli("model", "submit", "models.py", "--table", "log")
    train = ("train", "first", "--config", "training.json")
    found = cli(*train, "--run-dir", "one", "--json").json
    lookups = {int(missed): count for missed, count in found["staleness"].items()}
    assert set(lookups) == {0, 1, 2, 3}
    assert lookups[0] == lookups[1] == lookups[2], "each epoch begins with its tables up to date"
    assert lookups[3] > lookups[0]
    assert 0 < found["batch_overlap"] < 1
    assert 0 < found["missed_row_updates"] < 3
    assert 0 < found["most_frequent_row_share"] <= 1
    text = " ".join(cli(*train, "--run-dir", "other").out.split())
    assert f"{sum(lookups.values()):,} lookups missed " in text
    assert "on average, at most 3 (" in text
    assert f"of its own row an id missed {found['missed_row_updates']:.2f} (" in text
    assert "of events have the most frequent row of their batch)" in text
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({**options, "staleness": 65}), encoding="utf-8")
    assert "staleness must be an integer in [0, 64]" in cli("train", "first", "--config", wrong, status=2).err
