"""Finds the packages beside ``headrace`` in a checkout, before all others and by their names in a wheel too.

A wheel has them below ``headrace``: there this module does nothing. In a checkout ``headrace.trainer`` is ``trainer``, the same
module by another name, and a folder ``trainer/`` of the project that Headrace is used in does not take its place.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_PARTS = ("transforms", "warehouse", "pipelines", "trainer")
_ROOT = Path(__file__).parents[1]


class _CheckoutFinder:
    """Finds the four packages, and all modules of them by their names below ``headrace``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec; None leaves the search to the other finders."""
        if fullname in _PARTS:
            return PathFinder.find_spec(fullname, [str(_ROOT)])
        top, _, name = fullname.partition(".")
        if top == "headrace" and name.partition(".")[0] in _PARTS:
            return self._second_name(fullname, name)
        return None

    def _second_name(self, fullname: str, name: str) -> ModuleSpec | None:
        parent = name.rpartition(".")[0]
        places = list(import_module(parent).__path__) if parent else [str(_ROOT)]
        found = PathFinder.find_spec(name, places)
        if found is None:
            return None
        is_package = found.submodule_search_locations is not None
        loader: Any = _SecondName(
            name, found
        )  # no subclass of importlib.abc.Loader, whose import takes longer than all of this
        return ModuleSpec(fullname, loader, origin=found.origin, is_package=is_package)


class _SecondName:
    """Gives a module that has another name already."""

    def __init__(self, name: str, found: ModuleSpec) -> None:
        self._name, self._found = name, found
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself."""
        module = import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing but give the module its own spec again, which the import of a second name replaces."""
        module.__spec__ = self._spec

    def get_code(self, fullname: str) -> CodeType | None:
        """The module's code, for ``python -m``."""
        loader: Any = self._found.loader
        code: CodeType | None = loader.get_code(self._name)
        return code


def _refuse_other_packages() -> None:
    """Raise :class:`ImportError` if another project's package was imported by one of the four names."""
    for name in _PARTS:
        file = getattr(sys.modules.get(name), "__file__", None)
        if name in sys.modules and (file is None or Path(file).resolve().parents[1] != _ROOT.resolve()):
            raise ImportError(
                f"the module {name} must be Headrace's in a checkout of Headrace, got {file}\n"
                f"  allowed: import headrace first; a wheel has its modules below headrace and leaves {name} to others\n"
                f"  next: pip install {_ROOT}"
            )


if PathFinder.find_spec("headrace.transforms", [str(Path(__file__).parent)]) is None:
    _refuse_other_packages()
    sys.meta_path.insert(0, _CheckoutFinder())
