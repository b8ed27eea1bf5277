"""Commands on homes that the environment names, called in this process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.cli.main import run

#: A model over the columns of the small log.
SEARCH_MODEL = """
import headrace as hr

model = hr.Model("ctr", client="search", label="clicked", table="log")
model.input("query", hr.text("query").lower().unigrams().hash_buckets(100))
model.input("overlap", (hr.text("query").unigrams() & hr.text("ad_title").unigrams()).hash_buckets(50))
"""


def call(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0, text: bool = False) -> Any:
    """What a command writes: its JSON document, or with ``text`` its screen; its errors if ``status`` is not 0."""
    capsys.readouterr()
    found = run([*map(str, arguments), *(["--json"] if not status and not text else [])])
    captured = capsys.readouterr()
    assert found == status, captured.err
    return captured.err if status else captured.out if text else json.loads(captured.out)
