"""``headrace table joins``: what joins there are, and evicting those that no live model reads."""

from __future__ import annotations

import pytest

MODEL = """
import headrace as hr

seen = hr.table("log").by(hr.int64("user_id"))
model = hr.Model("joined", client="a", label="clicked", table="log")
model.input("count", seen.count().log1p())
model.input("before", seen.latest(hr.text("query")).hash_buckets(10))
"""


@pytest.fixture
def joined(cli, small_log, tmp_path):
    """The command line, with a model that joins its table to itself."""
    (tmp_path / "joined.py").write_text(MODEL)
    cli("table", "add", "log", small_log, "--time-column", "time")
    cli("model", "submit", tmp_path / "joined.py")
    return cli


@pytest.mark.medium
def test_joined_columns_are_listed_and_evicted_once_no_model_reads_them(joined):
    assert "2 columns must be computed; next: headrace work --until-idle" in joined("table", "joins").out
    joined("work", "--until-idle")
    rows = joined("table", "joins", "log", "--json").json["joins"]
    assert [(one["models"], one["computed"] == one["fragments"] > 0, one["error"]) for one in rows] == [
        (["joined"], True, "")
    ] * 2
    assert (
        "live models read every joined column that has values: nothing to evict"
        in joined("table", "joins", "--evict-unread").out
    )
    joined("model", "retire", "joined", "--yes")
    assert "no live model reads 2 columns; next: headrace table joins --evict-unread" in joined("table", "joins").out
    planned = joined("table", "joins", "--evict-unread")
    assert "would evict 2 joined columns" in planned.out
    assert "nothing was changed; next: the same command with --yes" in planned.out
    done = joined("table", "joins", "log", "--evict-unread", "--yes", "--json").json
    assert done["dry_run"] is False
    assert sorted(one["column"] for one in done["columns"]) == sorted(one["column"] for one in rows)
    assert all(one["size_bytes"] > 0 for one in done["columns"])
    assert "nothing to evict" in joined("table", "joins", "--evict-unread").out
    assert "evicted: no live model reads them" in joined("table", "history", "log").out


def test_yes_alone_is_refused(joined):
    found = joined("table", "joins", "--yes", status=2)
    assert "--yes must go with --evict-unread" in found.err
    assert "add --evict-unread" in found.err
