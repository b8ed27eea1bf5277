"""What an image can import: Headrace, and the packages that its requirements bring, without all others of this environment."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
_WORD = re.compile(r"[-_.]+")

#: Runs ``headrace`` in a process that finds no module of the packages that the image lacks.
_WITHOUT = """
import json, sys
with open(sys.argv[1]) as file:
    absent = frozenset(json.load(file))

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in absent:
            raise ModuleNotFoundError(f"No module named {name!r} in this image", name=name)

sys.meta_path.insert(0, Absent())
from headrace.cli.main import main
sys.argv = ["headrace", *sys.argv[2:]]
main()
"""


def _name(text: str) -> str:
    return _WORD.sub("-", text).lower()


@cache
def _requirements(name: str, extra: str) -> tuple[Requirement, ...]:
    """What a package requires with an extra; what Headrace requires is in setup.py, since an installation may be older."""
    if name == "headrace":
        declared = runpy.run_path(str(ROOT / "setup.py"), run_name="read")
        return tuple(map(Requirement, declared["EXTRAS"][extra] if extra else declared["CORE"]))
    try:
        every = map(Requirement, distribution(name).requires or ())
    except PackageNotFoundError:
        return ()
    return tuple(one for one in every if one.marker is None or one.marker.evaluate({"extra": extra}))


def packages_of(extras: Iterable[str]) -> frozenset[str]:
    """Headrace with these extras and all that they require, by canonical names."""
    waiting, seen = [("headrace", extra) for extra in ("", *extras)], set()
    while waiting:
        found = waiting.pop()
        if found in seen:
            continue
        seen.add(found)
        for one in _requirements(*found):
            waiting += [(_name(one.name), extra) for extra in ("", *one.extras)]
    return frozenset(name for name, _ in seen)


def absent_modules(extras: Iterable[str]) -> list[str]:
    """The modules at the top of packages that are here, and that an image with these extras lacks."""
    there = packages_of(extras)
    return sorted(module for module, sources in packages_distributions().items() if not {*map(_name, sources)} & there)


def command_in_image(folder: Path, extras: Iterable[str], *words: str) -> list[str]:
    """``headrace`` with these words as in an image with these extras. ``folder``: for the list of absent modules."""
    absent = folder / "absent.json"
    absent.write_text(json.dumps(absent_modules(extras)), encoding="utf-8")
    return [sys.executable, "-c", _WITHOUT, str(absent), *words]
