"""The lines of the working tree that a revision does not have, by git."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

#: The packages whose lines become mutants.
TOPS = ("transforms", "warehouse", "pipelines", "trainer", "headrace")

_FILE = re.compile(r"^\+\+\+ b/(.+)$")
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def changed_lines(root: Path, since: str, tops: Sequence[str]) -> Mapping[str, frozenset[int]]:
    """The lines of each Python file under ``tops`` that ``since`` does not have, from 1; a new file has all of its lines."""
    found = _parsed(_git(root, "diff", "--unified=0", "--no-ext-diff", "--no-color", since, "--", *tops))
    for file in _git(root, "ls-files", "--others", "--exclude-standard", "--", *tops).splitlines():
        found[file] = set(range(1, (root / file).read_bytes().count(b"\n") + 2))
    return {file: frozenset(lines) for file, lines in sorted(found.items()) if file.endswith(".py") and lines}


def _parsed(diff: str) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    file = ""
    for line in diff.splitlines():
        if named := _FILE.match(line):
            file = named[1]
        elif hunk := _HUNK.match(line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            found.setdefault(file, set()).update(range(first, first + count))
    return found


def base_revision(root: Path) -> str:
    """The last release's tag; without one the 50th commit before this one, or the first."""
    tag = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0"], cwd=root, capture_output=True, text=True, check=False
    )
    return tag.stdout.strip() or _git(root, "rev-list", "--max-count=51", "--first-parent", "HEAD").split()[-1]


def tracked_files(root: Path) -> list[str]:
    """The files of the working tree that git does not ignore."""
    listed = _git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    return [file for file in listed if file and (root / file).is_file()]


def compiled_kernels(root: Path) -> list[str]:
    """The kernels that were compiled in the working tree, which are named by all that they are compiled from."""
    return [str(file.relative_to(root)) for top in TOPS for file in sorted((root / top).rglob("__pycache__/*.nbc"))]


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout
