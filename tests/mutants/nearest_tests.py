"""The tests that are nearest to a module: by the names of files, then by imports."""

from __future__ import annotations

import ast
from pathlib import Path

#: The most files of tests for one mutant.
MOST_FILES = 6


class NearestTests:
    """The files of tests under ``root/tests``, by what they import, themselves or through their helpers."""

    def __init__(self, root: Path) -> None:
        self._imports: dict[str, frozenset[str]] = {}
        for file in sorted((root / "tests").rglob("*.py")):
            self._imports[str(file.relative_to(root))] = _imported(file.read_bytes())
        self._tests = [file for file in self._imports if Path(file).name.startswith("test_")]

    def of(self, file: str) -> tuple[str, ...]:
        """The test files for a module's file, nearest first; at most :data:`MOST_FILES`.

        Those with its name in the mirrored folder; those there that import it; others that import it, also by a helper; and if there
        are none, all of the nearest folder that has any.
        """
        place = Path(file)
        module = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
        mirrored = Path("tests") / place.parent
        named = [test for test in self._tests if Path(test).parent == mirrored and _has_name(test, place.stem)]
        importing = [test for test in self._tests if module in self._reached(test)]
        near = [test for test in importing if Path(test).is_relative_to(mirrored)]
        found = tuple(dict.fromkeys((*named, *near, *importing)))[:MOST_FILES]
        return found or self._folder(mirrored)

    def _reached(self, test: str) -> frozenset[str]:
        """The modules that a test imports, and those that the helpers which it imports do."""
        direct = self._imports[test]
        helpers = [f"{module.replace('.', '/')}.py" for module in direct if module.startswith("tests.")]
        return direct.union(*(self._imports.get(helper, frozenset()) for helper in helpers))

    def _folder(self, folder: Path) -> tuple[str, ...]:
        while folder.parts:
            if inside := [test for test in self._tests if Path(test).parent == folder]:
                return tuple(inside)
            folder = folder.parent
        return ()


def _has_name(test: str, stem: str) -> bool:
    """Whether a test file is named after a module, as ``test_engine.py`` and ``test_engine_moves.py`` after ``engine.py``."""
    name = Path(test).stem.removeprefix("test_")
    return name == stem or name.startswith(f"{stem}_")


def _imported(source: bytes) -> frozenset[str]:
    """The modules that a source imports, and the names that it imports from packages, which may be modules."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)
