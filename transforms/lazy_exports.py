"""Names that a package's ``__init__.py`` exports without importing their modules.

A package writes each public name once, as an import under ``TYPE_CHECKING``:

    if TYPE_CHECKING:
        from transforms.expressions.model import Model as Model

    __getattr__, __dir__, __all__ = lazy_exports(__name__)

Type checkers, editors and refactoring tools read these imports; at run time a module is imported when one of its names is
first used. Python's own lazy imports (PEP 810) can replace this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import CodeType


def lazy_exports(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the imports under its ``if TYPE_CHECKING``.

    To be called where the package's module is run.
    """
    caller = sys._getframe(1)
    places = imported_names(caller.f_code, set(caller.f_globals))
    names = sorted(places)

    def get(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = places[name]
        return getattr(import_module(module), attribute)

    return get, names.copy, names


def imported_names(code: CodeType, bound: set[str]) -> dict[str, tuple[str, str]]:
    """The module and attribute of each name that a module imports, but for those in ``bound``.

    The module's code is run once more with an ``import`` that records in place of importing, up to its first call: there
    every imported name is bound to where it is from, and ``TYPE_CHECKING`` is true. It needs no source, so a package that
    is installed as bytecode or in an archive works too.
    """
    found: dict[str, object] = {}
    with suppress(_FirstCall):
        exec(code, {"__name__": "", "__builtins__": {"__import__": _record}}, found)
    return {name: place for name, place in found.items() if isinstance(place, _Place) and name not in bound}


class _FirstCall(Exception):
    """The module's code called what it imported."""


class _Place(tuple[str, str]):
    """The module and the attribute of an imported name."""

    def __call__(self, *_: object) -> object:
        raise _FirstCall


class _Recorded:
    """A module that was not imported; its attributes are their own places."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> _Place:
        return _Place((self._module, name))


def _record(name: str, *_: object) -> _Recorded:
    return _Recorded(name)
