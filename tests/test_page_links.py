"""Every link of the manual, and of the pages for contributors, inside the repository has its file, and its heading."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / ".github").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        ROOT / "tests" / "README.md",
    ]
)
#: Files in whose texts a page of the manual may be named with one of its headings.
CODE = ("transforms", "warehouse", "pipelines", "trainer", "headrace", "benchmarks", "tests", "examples")
_FENCE = re.compile(r"^(```+).*?^\1", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_NAMED = re.compile(r"docs/([\w-]+\.md)(?:#([\w-]+))?")


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub names them."""
    text, found, times = _FENCE.sub("", page.read_text(encoding="utf-8")), set(), Counter[str]()
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.add(f"{anchor}-{times[anchor]}" if times[anchor] else anchor)
        times[anchor] += 1
    found.update(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    return frozenset(found)


def missing(page: Path, path: str, anchor: str) -> bool:
    """Whether a link of a page to a path and an anchor leads nowhere."""
    target = (page.parent / path).resolve() if path else page
    return not target.exists() or bool(anchor and target.suffix == ".md" and anchor not in anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_of_a_page_leads_to_a_file_and_a_heading(page):
    links = _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    assert [f"{path}#{anchor}" for path, anchor in links if missing(page, path, anchor)] == []


def test_a_page_that_code_names_is_there():
    found = []
    for top in CODE:
        for file in sorted((ROOT / top).rglob("*.py")):
            for name, anchor in _NAMED.findall(file.read_text(encoding="utf-8")):
                if missing(ROOT / "README.md", f"docs/{name}", anchor):
                    found.append(f"{file.relative_to(ROOT)}: {name}#{anchor}")
    assert found == []


def test_a_missing_file_or_heading_is_found(tmp_path):
    (tmp_path / "a.md").write_text(
        "# One `--two` & three\n## Again\n## Again\n```\n# no heading\n```\n", encoding="utf-8"
    )
    page = tmp_path / "b.md"
    assert anchors(tmp_path / "a.md") == {"one---two--three", "again", "again-1"}
    assert not missing(page, "a.md", "again-1")
    assert missing(page, "a.md", "no-heading")
    assert missing(page, "c.md", "")
