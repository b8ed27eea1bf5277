"""The origin of a module: the project, which is bundled by source, or a package, by version."""

from __future__ import annotations

import sys
from functools import cache
from importlib import metadata
from pathlib import Path

from transforms.installation import PACKAGES, ROOT

#: The package name of the interpreter and its standard library.
PYTHON = "python"

_OWN_FOLDERS = tuple(ROOT.resolve() / package for package in PACKAGES)


def is_project(module_name: str) -> bool:
    """Whether a module is the user's own: neither of the standard library, nor installed, nor Headrace's."""
    top = module_name.partition(".")[0]
    if top == "__main__":
        return True
    if top in sys.stdlib_module_names:
        return False
    module = sys.modules.get(module_name)
    file = getattr(module, "__file__", None)
    if file is None:
        return module is None or top not in _distributions()
    parts = Path(file).resolve().parts
    return not (_is_headrace(Path(file)) or {"site-packages", "dist-packages"} & set(parts))


def _is_headrace(file: Path) -> bool:
    return any(file.resolve().is_relative_to(folder) for folder in _OWN_FOLDERS)


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())


def distributions_of(module_name: str) -> tuple[str, ...]:
    """The installed packages that a module outside the project belongs to; empty if none is known."""
    top = module_name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return (PYTHON,)
    if top in PACKAGES:
        return ("headrace",)
    return tuple(sorted(set(_distributions().get(top, ()))))


def version_of(package: str) -> str | None:
    """The version of a package in this process, the interpreter's as major.minor; None if it is not installed."""
    if package == PYTHON:
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
