"""Rebuild the function of a bundle: its sources are compiled in namespaces with only the bundle's values.

Workers and the submitting process run this function.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import importlib
import json
import linecache
from collections.abc import Callable
from functools import lru_cache
from types import CellType, FunctionType, SimpleNamespace
from typing import Any

from transforms.errors import InputError
from transforms.functions.bundle import FORMAT
from transforms.functions.errors import OtherPackageVersion
from transforms.functions.outside import resolve
from transforms.functions.packages import version_of
from transforms.functions.sources import compiled_class, compiled_function
from transforms.functions.values import Document, decoded
from transforms.installation import own_module


@lru_cache(maxsize=1024)
def parsed(bundle: str) -> dict[str, Any]:
    """The bundle's document. Raises :class:`InputError` for any other text."""
    try:
        document = json.loads(bundle)
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError("the text must be the bundle of a function", value=bundle[:60], allowed=FORMAT)
    return document


def name_of(bundle: str) -> str:
    """The function's own name."""
    document = parsed(bundle)
    ((kind, content),) = document["function"].items()
    if kind == "definition":
        return str(document["definitions"][content]["name"])
    return str(content[1]) if kind == "import" else kind


@lru_cache(maxsize=256)
def rebuilt(bundle: str) -> Callable[..., Any]:
    """The function. Raises :class:`OtherPackageVersion` if its packages have other versions in this process."""
    function: Callable[..., Any] = Rebuilt(bundle).root
    return function


def _check_packages(bundle: str) -> None:
    for package, version in parsed(bundle)["packages"].items():
        found = version_of(package)
        if found != version:
            raise OtherPackageVersion(
                "the version of a package must be the one that the function was fingerprinted with",
                where=f"function {name_of(bundle)}",
                value=f"{package} {found or 'is not installed'}",
                allowed=f"{package} {version}",
                next_step="install that version here, or submit the model again from a process that has this one",
            )


class Rebuilt:
    """The rebuilt definitions: functions first, then the values of their names, then classes by dependency.

    Attributes:
        root: the function.
        objects: the functions and classes of the definitions, in their order.
        namespaces: the namespace of each definition.
    """

    def __init__(self, bundle: str) -> None:
        _check_packages(bundle)
        document = parsed(bundle)
        definitions: list[dict[str, Document]] = document["definitions"]
        self._definitions = definitions
        # C code that imports something on behalf of a function looks for the builtins among the function's globals.
        self.namespaces: list[dict[str, Any]] = [{"__name__": "model", "__builtins__": builtins} for _ in definitions]
        self.objects: list[Any] = [None] * len(definitions)
        self._cells: list[dict[str, CellType]] = [{} for _ in definitions]
        self._entered: set[int] = set()
        for position, definition in enumerate(definitions):
            if "class" not in definition:
                self.objects[position] = self._function(position, definition)
        for position in range(len(definitions)):
            self._enter(position)
        self.root: Any = self.value(document["function"])

    def value(self, document: Document) -> Any:
        """The value of a document; a class that it uses is made first."""
        return decoded(document, self._defined)

    def _function(self, position: int, definition: dict[str, Document]) -> FunctionType:
        code = compiled_function(definition["source"], list(definition["free"]), _remembered(definition["source"]))
        cells = self._cells[position]
        cells.update({name: CellType() for name in code.co_freevars})
        closure = tuple(cells[name] for name in code.co_freevars)
        return FunctionType(code, self.namespaces[position], definition["name"], None, closure)

    def _enter(self, position: int) -> None:
        """Fill the namespace of a definition; run it if it is a class."""
        if position in self._entered:
            return
        self._entered.add(position)
        definition = self._definitions[position]
        namespace = self.namespaces[position]
        namespace.update({name: self.value(document) for name, document in definition["names"].items()})
        if "class" in definition:
            code = compiled_class(definition["source"], _remembered(definition["source"]))
            exec(code, namespace)
            self.objects[position] = namespace[definition["class"]]
            return
        for name, document in definition["free"].items():
            self._cells[position][name].cell_contents = self.value(document)
        function = self.objects[position]
        function.__defaults__ = tuple(map(self.value, definition["defaults"])) or None
        function.__kwdefaults__ = {
            key: self.value(each) for key, each in definition["keyword_defaults"].items()
        } or None

    def _defined(self, kind: str, content: Any) -> object:
        match kind:
            case "definition":
                return self._definition(content)
            case "import":
                return resolve(own_module(content[0]), content[1])
            case "module":
                modules = [importlib.import_module(own_module(name)) for name in content]
                return modules[0]
            case "namespace":
                return SimpleNamespace(**{name: self.value(document) for name, document in content.items()})
            case "partial":
                function, arguments, keywords = map(self.value, content)
                return functools.partial(function, *arguments, **keywords)
            case "member":
                return getattr(self._definition(content[0]), content[1])
            case "instance":
                return self._instance(*content)
            case _:
                raise InputError("a value of a bundle must have a known kind", value=kind)

    def _definition(self, position: int) -> Any:
        self._enter(position)
        return self.objects[position]

    def _instance(self, position: int, fields: dict[str, Document]) -> Any:
        kind = self._definition(position)
        made = object.__new__(kind)
        for name, document in fields.items():
            object.__setattr__(made, name, self.value(document))
        return made


def _remembered(source: str) -> str:
    """A file name under which tracebacks find the source; one per source."""
    lines = (source + "\n").splitlines(keepends=True)
    tree = ast.parse(source).body[0]
    digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    name = f"<function {getattr(tree, 'name', 'lambda')} of a model, {digest}>"
    linecache.cache[name] = (len(source), None, lines, name)
    return name
