"""Names that a package's ``__init__.py`` exports without importing their modules.

A package writes each public name once, as an import under ``TYPE_CHECKING``:

    if TYPE_CHECKING:
        from transforms.expressions.model import Model as Model

    __getattr__, __dir__, __all__ = lazy_exports(__name__)

Type checkers, editors and refactoring tools read these imports; at run time a module is imported when one of its names is
first used. Python's own lazy imports (PEP 810) can replace this.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Iterator
from importlib import import_module


def lazy_exports(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the imports under its ``if TYPE_CHECKING``.

    Raises :class:`ImportError` for a package without its source.
    """
    modules = dict(type_imports(_source_of(package)))
    names = sorted(modules)

    def get(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return get, names.copy, names


def _source_of(package: str) -> str:
    spec = importlib.util.find_spec(package)
    source = getattr(spec.loader, "get_source", lambda _: None)(package) if spec else None
    if not isinstance(source, str):
        raise ImportError(f"the source of package {package} must be installed, got none", name=package)
    return source


def type_imports(source: str) -> Iterator[tuple[str, str]]:
    """Each name that is imported under ``if TYPE_CHECKING``, with its module."""
    for statement in ast.parse(source).body:
        if (
            isinstance(statement, ast.If)
            and isinstance(statement.test, ast.Name)
            and statement.test.id == "TYPE_CHECKING"
        ):
            for each in statement.body:
                if isinstance(each, ast.ImportFrom) and each.module:
                    yield from ((alias.name, each.module) for alias in each.names)
