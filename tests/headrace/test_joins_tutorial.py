"""Runs the commands of the page "A log that sees its own past"."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.own_log_page import chapter
from tests.support.own_logs import write_news

PAGE = "joins-tutorial.md"


@pytest.mark.slow
def test_every_command_of_the_page_does_what_it_says(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_news(Path("news.jsonl"))
    lines = Path("news.jsonl").read_text(encoding="utf-8").splitlines()
    Path("late.jsonl").write_text("\n".join(lines[2000:2012]) + "\n", encoding="utf-8")
    first, second = chapter("News with histories", PAGE), chapter("Late rows", PAGE)
    Path("news.py").write_text(first.model, encoding="utf-8")
    answers = [cli(*words[1:]).out for words in (*first.commands, *second.commands)]
    checked, submitted, worked, joins, trained, dry, appended, again, explained, history = answers[2:]
    assert "(failed)" not in checked
    assert "wait for joined columns" in submitted
    assert "joined columns of 4 fragments" in worked
    assert joins.count("all\n") == 3
    assert float(re.search(r"normalized entropy ([\d.]+)", trained).group(1)) < 1
    assert "3 joined columns may change in at most" in dry
    assert "next: headrace work" in appended
    assert "joined columns of" in again
    assert "0 misses" in explained
    assert history.count("joined columns") == 2
