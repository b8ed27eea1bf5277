"""Objects of packages and of the standard library: their paths, and the forbidden ones."""

from __future__ import annotations

import builtins
import importlib
import sys
from types import BuiltinFunctionType, MethodType, ModuleType

from transforms.functions.impure import FORBIDDEN, FORBIDDEN_BUILTINS, PURE, PURE_PATHS

_WHY = "which differs between runs or machines"


def forbidden(path: str) -> str:
    """The reason why a path such as ``time.time`` is forbidden, or ''."""
    path = _public(path)
    top, _, rest = path.partition(".")
    if top == "builtins":
        return FORBIDDEN_BUILTINS.get(rest, "")
    if any(_is_within(path, each) for each in FORBIDDEN):
        return f"is {path}, {_WHY}"
    if top not in sys.stdlib_module_names or any(_is_within(path, each) for each in PURE):
        return ""
    if any(_is_within(path, each) or each.startswith(path + ".") for each in PURE_PATHS):
        return ""
    if any(each.startswith(path + ".") for each in PURE):
        return ""  # the package that a pure module is in
    return f"is {path}, {_WHY}"


def forbidden_object(value: object) -> str:
    """As :func:`forbidden`, for the object itself, under any name."""
    for path in FORBIDDEN:
        module, _, name = path.rpartition(".")
        home = sys.modules.get(module)
        if home is not None and vars(home).get(name) is value:
            return f"is {path}, {_WHY}"
    path = ".".join(path_of(value) or ())
    return forbidden(path) if path else ""


def _is_within(path: str, whole: str) -> bool:
    return path == whole or path.startswith(whole + ".")


def _public(path: str) -> str:
    """The path with the public module's name: functions of ``os.path`` and C modules have others."""
    for private, public in (("posixpath", "os.path"), ("ntpath", "os.path"), ("genericpath", "os.path"),
                            ("posix", "os"), ("nt", "os")):  # fmt: skip
        if _is_within(path, private):
            return public + path[len(private) :]
    top = path.partition(".")[0]
    if top.startswith("_") and top in sys.stdlib_module_names and top.lstrip("_") in sys.stdlib_module_names:
        return path.lstrip("_")
    return path


def path_of(value: object) -> tuple[str, str] | None:
    """(module, qualified name) of a function, class or method that can be found again by them."""
    owner = getattr(value, "__self__", None)
    name = str(getattr(value, "__name__", ""))
    if isinstance(value, BuiltinFunctionType | MethodType) and isinstance(owner, type):
        return owner.__module__, f"{owner.__qualname__}.{name}"
    if isinstance(value, BuiltinFunctionType | MethodType) and not isinstance(owner, ModuleType | None):
        return type(owner).__module__, f"{type(owner).__qualname__}.{name}"
    module, qualified = getattr(value, "__module__", None), getattr(value, "__qualname__", name)
    return (str(module), str(qualified)) if module and qualified else None


def resolve(module: str, qualified: str) -> object:
    """The object at a path. Raises :class:`ImportError` or :class:`AttributeError`."""
    value: object = importlib.import_module(module)
    for part in filter(None, qualified.split(".")):
        value = getattr(value, part)
    return value


def importable(value: object) -> tuple[str, str] | None:
    """As :func:`path_of`, if that leads back to the same value."""
    path = path_of(value)
    if path is None or path[0] not in sys.modules:
        return None
    try:
        found = resolve(*path)
    except (ImportError, AttributeError):
        return None
    same = found is value or (getattr(value, "__self__", None) is not None and found == value)
    return path if same else None


def builtin(name: str) -> bool:
    """Whether a name is Python's own."""
    return hasattr(builtins, name)
