"""Pins the newest packages that resolve together: ``make refresh``, which runs ``python -m tests.release.refresh .release/bin/uv``.

The resolution holds for every supported Python that the full set has wheels for; a package with other versions on some of them has a line for each.
What is not the newest is listed afterwards: ``docs/dependencies.md`` has the reason of each.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import ROOT

#: What OR-Tools needs of its requirements: it is installed without them (requirements-no-deps.txt).
_ALSO = ("immutabledict",)
#: Upper bounds that no package declares: setup.py extends commands of setuptools, and was tried with this major version alone.
_BOUNDS = ("setuptools<81",)
PINS = ROOT / "requirements.txt"
_LINE = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)\s*(?:;\s*(.+))?")


def pins_of(text: str) -> dict[str, tuple[str, ...]]:
    """The pinned versions of each package, by its normalised name."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        if match := _LINE.fullmatch(line.strip()):
            name = re.sub(r"[-_.]+", "-", match[1]).lower()
            found[name] = (*found.get(name, ()), match[2])
    return found


def changes(before: Mapping[str, tuple[str, ...]], after: Mapping[str, tuple[str, ...]]) -> list[str]:
    """A line for each package that is added, removed or pinned to another version, by name."""
    lines = []
    for name in sorted(before.keys() | after.keys()):
        old, new = (" and ".join(found.get(name, ())) for found in (before, after))
        if old != new:
            lines.append(f"{name}: {old or 'new'} -> {new or 'removed'}")
    return lines


def resolved(uv: str) -> str:
    """What uv resolves from ``setup.py`` with all extras, one pin a line. Raises :class:`subprocess.CalledProcessError`."""
    with tempfile.TemporaryDirectory(prefix="headrace-refresh-") as place:
        further, bounds = Path(place) / "further.in", Path(place) / "bounds.txt"
        further.write_text("\n".join(_ALSO), encoding="utf-8")
        bounds.write_text("\n".join(_BOUNDS), encoding="utf-8")
        command = [uv, "pip", "compile", "setup.py", str(further), "--constraint", str(bounds), "--extra", "all", "--universal", "--python-version", "3.11",
                   "--upgrade", "--quiet", "--no-header", "--no-annotate", "--no-emit-index-url"]  # fmt: skip
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def head_of(text: str) -> str:
    """The comments before the pins."""
    lines = text.splitlines()
    return "\n".join(lines[: next(number for number, line in enumerate(lines) if _LINE.fullmatch(line))]) + "\n"


def main() -> None:
    """Write the pins, and print what changed."""
    before = PINS.read_text(encoding="utf-8")
    after = head_of(before) + resolved(sys.argv[1])
    Path(PINS).write_text(after, encoding="utf-8")
    found = changes(pins_of(before), pins_of(after))
    print("\n".join(found) or "every pin is the newest that resolves")
    print("next: make test-all, and what is held back: .venv/bin/python -m pip list --outdated")


if __name__ == "__main__":
    main()
