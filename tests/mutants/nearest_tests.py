"""The tests that are nearest to a module: by the names of files, then by imports, step by step through the modules that import it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from tests.mutants.changed_lines import TOPS

#: The most files of tests for one mutant; and so many are enough, whatever the modules that import it have.
MOST_FILES, ENOUGH_FILES = 6, 3
#: Tests of all modules of a folder at once, which import them by the names of commands: they compare the help of each command.
_OF_FOLDERS = {"headrace/cli/": "tests/headrace/test_commands.py"}


class NearestTests:
    """The files of tests under ``root/tests``, by what they import: themselves, through their helpers, or through other modules."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._imports = _imports_under(root, ("tests",))
        self._tests = [file for file in self._imports if Path(file).name.startswith("test_")]

    def of(self, file: str) -> tuple[str, ...]:
        """The test files for a module's file, nearest first; at most :data:`MOST_FILES`.

        Those with its name in the mirrored folder or one above it, and those that import it, themselves or by a helper. If they are few, those
        with the name of a module that imports it, then of one that imports that, and so on; if there are none yet, also the tests that
        import such a module. Else files of the nearest folder that has any.
        """
        found: dict[str, None] = {}
        seen = wave = frozenset({file})
        while wave and len(found) < ENOUGH_FILES:
            modules = sorted(wave, key=lambda one: (-_common_folders(one, file), one))
            for module in modules:
                self._add(found, file, self._named(module))
            if wave == {file} or not found:
                for module in modules:
                    self._add(found, file, self._importing(module))
            wave = frozenset(one for module in wave for one in self._importers.get(_module_of(module), ())) - seen
            seen |= wave
        nearest = tuple(found)[:MOST_FILES] or self._folder(Path("tests") / Path(file).parent)[:MOST_FILES]
        also = [test for folder, test in _OF_FOLDERS.items() if file.startswith(folder) and test in self._imports]
        return tuple(dict.fromkeys((*nearest, *also)))

    @staticmethod
    def _add(found: dict[str, None], file: str, tests: Iterable[str]) -> None:
        """Add tests, those in folders near to the module's mirrored one first."""
        found.update(dict.fromkeys(sorted(tests, key=lambda one: (-_common_folders(one, f"tests/{file}"), one))))

    def _named(self, file: str) -> list[str]:
        """The tests with a module's name, in the mirrored folder or one above it."""
        folders = (Path("tests") / Path(file)).parents
        return [test for test in self._tests if Path(test).parent in folders and _has_name(test, Path(file).stem)]

    def _importing(self, file: str) -> list[str]:
        return self._reaching.get(_module_of(file), [])

    @cached_property
    def _reaching(self) -> dict[str, list[str]]:
        """The tests that import each module, themselves or by the helpers which they import."""
        found: dict[str, list[str]] = {}
        for test in self._tests:
            direct = self._imports[test]
            helpers = [f"{module.replace('.', '/')}.py" for module in direct if module.startswith("tests.")]
            for module in direct.union(*(self._imports.get(helper, frozenset()) for helper in helpers)):
                found.setdefault(module, []).append(test)
        return found

    @cached_property
    def _importers(self) -> dict[str, list[str]]:
        """The files that import each module."""
        found: dict[str, list[str]] = {}
        for file, modules in _imports_under(self._root, TOPS).items():
            for module in modules:
                found.setdefault(module, []).append(file)
        return found

    def _folder(self, folder: Path) -> tuple[str, ...]:
        while folder.parts:
            if inside := [test for test in self._tests if Path(test).parent == folder]:
                return tuple(inside)
            folder = folder.parent
        return ()


def _has_name(test: str, stem: str) -> bool:
    """Whether a test file is named after a module, as ``test_engine.py``, ``test_engines.py`` and ``test_engine_moves.py`` after ``engine.py``."""
    name = Path(test).stem.removeprefix("test_")
    return name in (stem, f"{stem}s") or name.startswith(f"{stem}_")


def _module_of(file: str) -> str:
    return ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")


def _common_folders(file: str, other: str) -> int:
    """How many folders, from the root on, two files are both in."""
    return len({*Path(file).parents} & {*Path(other).parents})


def _imports_under(root: Path, tops: Iterable[str]) -> dict[str, frozenset[str]]:
    files = [file for top in tops for file in sorted((root / top).rglob("*.py"))]
    return {str(file.relative_to(root)): _imported(file.read_bytes()) for file in files}


def _imported(source: bytes) -> frozenset[str]:
    """The modules that a source imports, and the names that it imports from packages, which may be modules.

    A text may be the name of a module too, as of a command's that is imported when it is called.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(_NAMES):
            found.add(node.value)
    return frozenset(found)


#: How the names of modules begin.
_NAMES = tuple(f"{top}." for top in TOPS)
