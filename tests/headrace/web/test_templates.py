"""What templates must hold for keyboards and screen readers, checked in their texts: axe-core checks the rest in a browser, with more time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headrace.web

TEMPLATES = sorted((Path(headrace.web.__file__).parent / "templates").glob("*.html"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_parts_that_scroll_can_be_reached_by_keyboard(path: Path) -> None:
    """Wide tables, drawings and blocks of text have tabindex="0"; a table's frame also has a name."""
    text = path.read_text(encoding="utf-8")
    parts = re.findall(r'<(?:pre|figure)\b[^>]*>|<div class="scroll"[^>]*>', text)
    assert [one for one in parts if 'tabindex="0"' not in one] == []
    assert [
        one for one in parts if one.startswith("<div") and not re.search('role="group" aria-label="[^"]+"', one)
    ] == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_nothing_is_inline_that_the_policy_refuses(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert (
        re.findall(r"<(?:script|style|iframe|object|embed)\b|\bstyle=|\son\w+=|javascript:|\|\s*safe\b|Markup\(", text)
        == []
    )
