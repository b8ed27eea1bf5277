"""Things of packages and of the standard library: what they are called, and which of them change from run to run."""

from __future__ import annotations

import builtins
import importlib
import sys
from types import BuiltinFunctionType, MethodType, ModuleType

#: Modules nothing of which may be used, and paths within the others. What they give differs between runs or machines.
_FORBIDDEN = (
    "random", "secrets", "time", "socket", "subprocess", "tempfile", "glob", "shutil", "http", "urllib.request",
    "requests", "threading", "multiprocessing", "asyncio", "numpy.random", "pyarrow.compute.random", "pyarrow.fs",
    "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today",
    "datetime.datetime.fromtimestamp", "uuid.uuid1", "uuid.uuid4", "uuid.getnode", "io.open", "pathlib.Path.read_text",
    "pathlib.Path.read_bytes", "pathlib.Path.home", "pathlib.Path.cwd", "pandas.Timestamp.now", "pandas.Timestamp.today",
    "_io.open", "_io.FileIO", "codecs.open", "platform", "locale", "getpass", "importlib", "inspect", "gc", "ctypes",
)  # fmt: skip
#: Of ``os`` and ``sys`` only what depends on nothing outside.
_ALLOWED = {
    "os": ("os.path.basename", "os.path.dirname", "os.path.join", "os.path.split", "os.path.splitext", "os.sep",
           "os.path.normpath", "os.path.commonprefix"),
    "sys": ("sys.maxsize", "sys.float_info", "sys.maxunicode"),
}  # fmt: skip
_FORBIDDEN_BUILTINS = {
    "open": "reads files", "input": "reads from a person", "hash": "differs between processes for text",
    "id": "differs between runs", "exec": "runs code that cannot be seen", "eval": "runs code that cannot be seen",
    "compile": "runs code that cannot be seen", "globals": "reaches everything", "locals": "reaches everything",
    "vars": "reaches everything", "__import__": "imports what cannot be seen", "breakpoint": "stops the worker",
}  # fmt: skip


def forbidden(path: str) -> str:
    """Why what stands at a path such as ``time.time`` may not be used, or ''."""
    top = path.partition(".")[0]
    path = path.replace("posixpath.", "os.path.").replace("ntpath.", "os.path.")
    if top == "builtins":
        return _FORBIDDEN_BUILTINS.get(path.partition(".")[2], "")
    if top in _ALLOWED or path.startswith("os.path."):
        allowed = _ALLOWED["os" if path.startswith("os.") else top]
        parts = (path == each or each.startswith(path + ".") for each in allowed)
        return "" if any(parts) else f"is {path}, which differs between runs or machines"
    if any(path == each or path.startswith(each + ".") for each in _FORBIDDEN):
        return f"is {path}, which differs between runs or machines"
    return ""


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
    """What stands at a path. Raises :class:`ImportError` or :class:`AttributeError`."""
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
