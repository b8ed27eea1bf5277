"""Runs the commands and the Python of the page "Online answers of joined columns"."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.own_logs import write_news

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.medium
def test_every_step_of_the_page_does_what_it_says(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_news(Path("news.jsonl"))
    blocks = _BLOCK.findall((ROOT / "docs" / "online-states.md").read_text(encoding="utf-8"))
    kinds = [kind for kind, _ in blocks]
    assert kinds == ["python", "sh", "python", "python", "sh"]
    Path("news.py").write_text(blocks[0][1], encoding="utf-8")
    answers = [cli(*shlex.split(line)[1:]).out for line in blocks[1][1].splitlines()]
    assert "000000-full" in answers[-1]
    names: dict[str, object] = {}
    for _, text in blocks[2:4]:
        exec(compile(text, "page", "exec"), names)
    found = names["answers"]
    assert isinstance(found, dict)
    count, last = (next(value for name, value in found.items() if f".{what}#" in name) for what in ("count", "last"))
    assert count > 1
    assert last[-1] == "a7"
    words = shlex.split(blocks[4][1])[1:]
    out = cli(*words, status=1).out
    assert f"{count}  " in out.replace("│", " ")
    assert re.search(rf"\b{count}\s+{count - 1}\b", out), "the pushed row is in one of both alone"
