"""A part of a page that a test writes between two comments, and compares."""

from __future__ import annotations

import os
from pathlib import Path


def check_generated_part(page: Path, expected: str, name: str = "") -> None:
    """Compare the part between ``<!-- begin: NAME -->`` and ``<!-- end -->``; with ``HEADRACE_WRITE_GOLDENS`` write it."""
    begin, end = f"<!-- begin{name and f': {name}'} -->\n", "<!-- end -->\n"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    found, _, after = rest.partition(end)
    if os.environ.get("HEADRACE_WRITE_GOLDENS"):
        page.write_text(f"{before}{begin}{expected}{end}{after}", encoding="utf-8")
        return
    assert found == expected
