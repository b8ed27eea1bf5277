"""``headrace model diff``: what it prints of two versions of the example."""

from __future__ import annotations

from typing import Any

MODEL = """
import headrace as hr

model = hr.Model("m", client="search", label="clicked", table="log", priority={priority})
model.input("words", hr.text("query").unigrams().hash_buckets({buckets}))
model.input("{name}", hr.text("query").length())
"""


def test_a_diff_names_what_differs(cli: Any, tmp_path: Any) -> None:
    """Settings, changed, new and gone inputs; a first version has nothing before it."""
    from tests.warehouse.scenes import write_log

    cli("init")
    cli("table", "add", "log", write_log(tmp_path / "log", hours=1))
    file = tmp_path / "m.py"
    file.write_text(MODEL.format(priority=1, buckets=11, name="gone"))
    cli("model", "submit", file)
    assert "must have one before it" in cli("model", "diff", "m", status=2).err
    file.write_text(MODEL.format(priority=2, buckets=12, name="added"))
    cli("model", "submit", file)
    shown = cli("model", "diff", "m").out
    assert "model m: version 1 to version 2" in shown
    assert "priority: 1 -> 2" in shown
    for name, state in (("words", "changed"), ("gone", "gone"), ("added", "new")):
        assert any(line.split()[:2] == [name, state] for line in shown.splitlines()), shown
    same = cli("model", "diff", "m", "--from", 2, "--to", 2).out
    assert "2 inputs are the same" in same
    assert cli("model", "diff", "m", "--json").json["before"] == 1
