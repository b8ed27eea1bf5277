"""``headrace stats lookups``: how often a log looks up the rows of a model's tables, before training."""

from __future__ import annotations

from collections import Counter

import headrace as hr
from headrace.screens.lookups import outlook_text
from tests.headrace.test_commands import check_golden
from trainer.planning.lookup_tail import PruningOutlook


def test_lookups_are_those_of_the_log(submitted, tmp_path):
    check_golden("stats_lookups", submitted("stats", "lookups", "second").out)
    document = submitted("stats", "lookups", "first", "--end", "2026-03-02T02:00", "--json").json
    read = hr.read("first", end="2026-03-02T02:00", home=str(tmp_path / "home"))
    users = Counter(one for one in read.column("user").to_pylist() if one is not None)
    found = {one["name"]: one for one in document["tables"]}
    assert list(found) == ["overlap", "user"], "numbers have no tables"
    assert document["events"] == read.num_rows
    assert found["user"]["seen_rows"] == len(users)
    assert found["user"]["lookups"] == sum(users.values())
    assert found["user"]["once_rows"] == sum(count == 1 for count in users.values())
    assert submitted("holds", "ls", "--json").json.get("holds", []) == [], "nothing is pinned afterwards"


def test_hashed_tables_have_no_limit_and_are_not_pruned(submitted):
    hashed = '{"hashed": {"user": {"capacity": 100}}}'
    document = submitted("stats", "lookups", "first", "--config", hashed, "--json").json
    rows = {one["name"]: one["rows"] for one in document["tables"]}
    assert rows == {"overlap": 1000, "user": None}
    assert "no limit" in submitted("stats", "lookups", "first", "--config", hashed).out
    every = '{"hashed": {"user": {"capacity": 100}, "overlap": {"capacity": 100}}}'
    assert submitted("stats", "lookups", "first", "--config", every, "--json").json["outlook"] is None


def test_a_model_and_a_range_must_be_there(submitted):
    submitted("stats", "lookups", "none", status=4)
    assert "must hold events" in submitted("stats", "lookups", "first", "--start", "2027-01-01", status=2).err


def test_the_screen_says_whether_pruning_pays():
    costs = outlook_text(PruningOutlook(0.026, 0.001, 0.95, 234))
    assert costs.startswith(
        "pruning costs: half of the rows that occur are looked up 234 times or more, and learn; only 2.6 % of"
    )
    short = outlook_text(PruningOutlook(0.25, 0.1, 0.2, 1))
    assert short.startswith(
        "this log says little about pruning: half of the rows that occur are looked up at most 1 time"
    )
    pays = outlook_text(PruningOutlook(0.9, 0.1, 0.0371, 1))
    assert pays.endswith('and have 10.0 % of the lookups; the others fit "pruning": {"budget": 0.038}')
    for budget in (1e-8, 0.0999, 0.1, 0.5, 1.0):  # never less than the rows need
        shown = float(outlook_text(PruningOutlook(0.9, 0.1, budget, 1)).rpartition(" ")[2].rstrip("}"))
        assert budget <= shown <= max(1.1 * budget, 1e-8)
