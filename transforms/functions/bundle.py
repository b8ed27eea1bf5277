"""The bundle of a function: the function and all that it reaches as one JSON text, ``headrace.function/1``.

    definitions   sources of functions and classes, each with the values of its outer names, its enclosed variables and
                  its defaults; they refer to each other by position, and the first is the function itself
    function      the function: a definition, or one that a package brings
    packages      package name to version, for every package that is reached

A definition has only the names that it uses, so its file and its neighbours have no effect.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import enum
import functools
import importlib
import inspect
import json
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from types import FunctionType, MethodType, ModuleType
from typing import Any

from transforms.functions.errors import Unfingerprintable
from transforms.functions.outside import builtin, forbidden, forbidden_object, importable, path_of
from transforms.functions.packages import PYTHON, distributions_of, is_project, version_of
from transforms.functions.reach import Chain, Reach, changed_names, imported_attributes, reach_of
from transforms.functions.refused import Outer, attributes_by_name, refused_in
from transforms.functions.sources import (
    compiled_class,
    compiled_function,
    is_of_its_file,
    source_of_class,
    source_of_function,
)
from transforms.functions.values import NOT_A_CONSTANT, Document, encoded
from transforms.installation import checkout_name, is_foreign_namesake

FORMAT = "headrace.function/1"

#: Methods of Arrow arrays that lead into other packages.
_LEADS_TO = {"to_numpy": ("numpy",), "__array__": ("numpy",), "to_pandas": ("numpy", "pandas")}
#: The maximum nesting of constants and functions; rebuilding them must fit the stack of a worker.
DEEPEST = 64
_SHALLOWER = "use fewer levels: a loop, a flat table, or one function in place of a chain"
_WHOLE: frozenset[Chain] = frozenset({()})
_NOTHING = object()
#: Types whose values reach nothing.
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


@dataclasses.dataclass(frozen=True, slots=True)
class Bundle:
    """The bundle of a function, with the objects of this process that it describes.

    Attributes:
        text: the bundle, which is fingerprinted and run.
        root: the function.
        objects: the functions and classes of the definitions, in their order.
        namespaces: the namespace of each definition.
    """

    text: str
    root: object
    objects: Sequence[object]
    namespaces: Sequence[Mapping[str, object]]


def write_bundle(function: object, name: str) -> Bundle:
    """The bundle of a function; equal functions have equal bundles in every process. Raises :class:`Unfingerprintable`."""
    bundler = _Bundler(function, name)
    try:
        root = bundler.bind(function, "", _WHOLE)
        document = {
            "format": FORMAT,
            "function": root,
            "definitions": bundler.definitions,
            "packages": bundler.packages(),
        }
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise Unfingerprintable(
            "its source, or what it reaches, is nested too deep", function=name, next_step=_SHALLOWER
        ) from None
    return Bundle(text, function, bundler.objects, [bundler.namespace_of(each) for each in bundler.objects])


class Wrapped:
    """The decorator's operator; within another function it means the function itself."""

    function: object


_PASS_IT = "pass what it gives as a column or a parameter"


class _Bundler:
    """The definitions in the order of discovery: depth first, names sorted."""

    def __init__(self, root: object, name: str) -> None:
        self.definitions: list[dict[str, Document]] = []
        self._root = root
        self._name = name
        self._positions: dict[int, int] = {}
        self.objects: list[object] = []  # kept alive, so that no id is reused
        self._within: list[int] = []  # the values that are being bound, outermost first
        self._reached: set[str] = {PYTHON, "pyarrow"}
        self._ordering: frozenset[int] = frozenset()  # the sets whose items are being sorted

    def packages(self) -> dict[str, str]:
        """The version of every package that was reached."""
        return {package: str(version_of(package)) for package in sorted(self._reached)}

    def bind(self, value: object, name: str, chains: Iterable[Chain]) -> Document:
        """The document of the value of a name."""
        if type(value) in _PLAIN:
            return encoded(value, lambda item, place: None)
        if len(self._within) >= DEEPEST:
            raise self._refusal(f"lies more than {DEEPEST} levels deep", name[:60], next_step=_SHALLOWER)
        if id(value) in self._within and not isinstance(value, FunctionType | type | Wrapped | Set):
            raise self._refusal("contains itself", name[:60], next_step="use a tuple, or a function that makes it")
        self._within.append(id(value))
        try:
            return self._bind(value, name, chains)
        finally:
            self._within.pop()

    def _bind(self, value: object, name: str, chains: Iterable[Chain]) -> Document:
        if type(value) in (set, frozenset):
            self._place_items(value, name)  # type: ignore[arg-type]
        constant = encoded(value, lambda item, place: self.bind(item, name + place, _WHOLE))
        if constant is not NOT_A_CONSTANT:
            self._count_constant(value)
            return constant
        if isinstance(value, ModuleType):
            return self._module(value, name, chains)
        if isinstance(value, Wrapped):
            return self.bind(value.function, name, chains)
        if type(value) is functools.partial and not vars(value):
            parts = (value.func, value.args, dict(value.keywords))
            return {"partial": [self.bind(part, name, _WHOLE) for part in parts]}
        if isinstance(value, enum.Enum) and is_project(type(value).__module__):
            if type(value).__members__.get(value.name or "") is not value:
                raise self._refusal(
                    "is a combination of members", name, value=value, next_step="combine them in the function"
                )
            return {"member": [self._class(type(value), name), value.name]}
        if dataclasses.is_dataclass(value) and not isinstance(value, type) and is_project(type(value).__module__):
            return self._instance(value, name)
        return self._function_or_class(value, name, chains)

    def _place_items(self, items: Set[object], name: str) -> None:
        """Add the definitions that a set reaches in the order of each item's own document, the same in every process."""
        if all(type(item) in _PLAIN for item in items):
            return
        if id(items) in self._ordering:
            raise self._refusal("is a set whose items use it", name, next_step="use a tuple")

        def alone(item: object) -> str:
            inner = _Bundler(self._root, self._name)
            inner._ordering = self._ordering | {id(items)}
            inner._within = list(self._within)
            return json.dumps([inner.bind(item, name, _WHOLE), inner.definitions], sort_keys=True)

        for item in sorted(items, key=alone):
            self.bind(item, name, _WHOLE)

    def _function_or_class(self, value: object, name: str, chains: Iterable[Chain]) -> Document:
        module = str(getattr(value, "__module__", None) or "")
        if isinstance(value, FunctionType):  # a wrapper has the module name of the wrapped function
            module = str(value.__globals__.get("__name__") or "__main__")
        if module and is_project(module) and not isinstance(value, MethodType):
            if isinstance(value, functools._lru_cache_wrapper):
                if value.cache_info().currsize:
                    raise self._refusal("has a cache that holds results of earlier calls", name,
                                 next_step=f"call {name}.cache_clear() before")  # fmt: skip
                return self.bind(value.__wrapped__, name, chains)  # not a function that this one wraps in turn
            if isinstance(value, FunctionType):
                return {"definition": self._function(value, name)}
            if isinstance(value, type):
                return {"definition": self._class(value, name)}
        return self._outside(value, name, chains)

    def _function(self, function: FunctionType, name: str) -> int:
        if id(function) in self._positions:
            return self._positions[id(function)]
        if function.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise self._refusal("is an async function", name, next_step="write it as an ordinary one")
        source = source_of_function(function)
        if source is None:
            raise self._refusal("is a function whose source cannot be found" if name else "its source cannot be found", name,
                         value=function.__qualname__, next_step="define it in a file, one lambda per line")  # fmt: skip
        if not is_of_its_file(function):
            raise self._refusal("has other code than its file says" if name else "its code is not what its file says", name,
                         value=function.__qualname__, next_step="import the file again, and replace no code")  # fmt: skip
        position = self._place(function)
        code = compiled_function(source, function.__code__.co_freevars)
        reach = reach_of(code)
        values = {**function.__globals__, **_contents(function)}
        self._check(source, reach, values)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self.definitions[position] = {
            "name": function.__code__.co_name,
            "source": source,
            "free": {each: self._enclosed(cells[each], each, reach) for each in sorted(code.co_freevars)},
            "names": self._names(reach, function.__globals__, set(code.co_freevars), function),
            "defaults": [self.bind(each, f"default of {function.__name__}", _WHOLE)
                         for each in function.__defaults__ or ()],
            "keyword_defaults": {key: self.bind(each, f"default of {key}", _WHOLE)
                                 for key, each in sorted((function.__kwdefaults__ or {}).items())},
        }  # fmt: skip
        return position

    def _class(self, kind: type, name: str) -> int:
        if id(kind) in self._positions:
            return self._positions[id(kind)]
        if kind.__name__ != kind.__qualname__.rpartition(".")[2]:
            raise self._refusal("has another name than its source gives", name, value=kind.__name__,
                         next_step="leave the class its name")  # fmt: skip
        namespace, file = self._home_of(kind)
        source = source_of_class(kind.__qualname__, file, namespace)
        if source is None:
            raise self._refusal("is a class whose source cannot be found at the top of its file", name,
                         value=kind.__qualname__, next_step="use a function, or a constant of a plain type")  # fmt: skip
        position = self._place(kind)
        reach = reach_of(compiled_class(source))
        self._check(source, reach, namespace)
        reach.names.pop(kind.__name__, None)
        self.definitions[position] = {
            "class": kind.__name__,
            "source": source,
            "names": self._names(reach, namespace, set(), None),
        }
        return position

    def namespace_of(self, defined: object) -> Mapping[str, object]:
        """The namespace of a function or a class."""
        if isinstance(defined, FunctionType):
            return defined.__globals__
        assert isinstance(defined, type), "a definition is a function or a class"
        return self._home_of(defined)[0]

    def _home_of(self, kind: type) -> tuple[dict[str, object], str]:
        module = sys.modules.get(kind.__module__)
        if module is not None and getattr(module, "__file__", None):
            return vars(module), str(module.__file__)
        for seen in self.objects:
            if isinstance(seen, FunctionType) and seen.__globals__.get("__name__") == kind.__module__:
                return seen.__globals__, seen.__code__.co_filename
        return {}, ""

    def _instance(self, value: Any, name: str) -> Document:
        fields = {
            field.name: self.bind(getattr(value, field.name), f"{name}.{field.name}", _WHOLE)
            for field in dataclasses.fields(value)
        }
        return {"instance": [self._class(type(value), name), fields]}

    def _place(self, value: object) -> int:
        self._positions[id(value)] = len(self.definitions)
        self.objects.append(value)
        self.definitions.append({})
        return len(self.definitions) - 1

    def _enclosed(self, cell: Any, name: str, reach: Reach) -> Document:
        try:
            value = cell.cell_contents
        except ValueError:
            raise self._refusal(
                "has no value yet", name, next_step="set it before the function is made an operator"
            ) from None
        return self._bind_outer(value, name, reach)

    def _bind_outer(self, value: object, name: str, reach: Reach) -> Document:
        if name in reach.changed and isinstance(value, list | dict | set | bytearray):
            raise self._refusal("is changed by the function", name, next_step="return what changes, and keep no state")
        return self.bind(value, name, reach.names.get(name, _WHOLE))

    def _names(
        self, reach: Reach, namespace: dict[str, object], free: set[str], function: FunctionType | None
    ) -> dict[str, Document]:
        bound: dict[str, Document] = {}
        for name in sorted(reach.names):
            if name in free:
                continue
            if function is self._root and function is not None and self._is_itself(name, namespace):
                bound[name] = {"definition": 0}
            elif name in namespace:
                bound[name] = self._bind_outer(namespace[name], name, reach)
            elif not builtin(name):
                raise self._refusal("is not defined yet", name, next_step="define it above the function")
            elif why := forbidden(f"builtins.{name}"):
                raise self._refusal(why, name, next_step=_PASS_IT)
        return bound

    def _is_itself(self, name: str, namespace: dict[str, object]) -> bool:
        """Whether the root calls itself: its name is bound after the decorator, or by an earlier run."""
        assert isinstance(self._root, FunctionType), "the caller knows that it is a function"
        known = namespace.get(name)
        return name == self._root.__qualname__ and (known is None or isinstance(known, Wrapped))

    def _check(self, source: str, reach: Reach, values: Mapping[str, object]) -> None:
        """Refuse source that no fingerprint covers; ``values`` are the values of its outer names."""
        for name in sorted(reach.written):
            raise self._refusal("is written by the function", name, next_step="return what changes, and keep no state")
        stored, reach.changed = changed_names(source)
        for name in sorted(stored & reach.names.keys()):
            raise self._refusal("is changed by the function", name, next_step="return what changes, and keep no state")
        reach.attributes |= set(attributes_by_name(source))
        for module, chain, is_use in imported_attributes(source):
            self._check_inner_import(module, chain, reach, is_use=is_use)
        for refused in refused_in(source, _outer(reach, values)):
            raise self._refusal(refused.why, refused.variable, next_step=refused.next_step)
        for name, chains in sorted(reach.names.items()):
            if () in chains and isinstance(values.get(name), type):
                self._check_class_as_value(values[name], name, reach)
        for attribute in reach.attributes & _LEADS_TO.keys():
            self._reached |= set(_LEADS_TO[attribute])

    def _check_class_as_value(self, kind: object, name: str, reach: Reach) -> None:
        """Refuse a class under another name if one of its attributes is refused."""
        path = ".".join(path_of(kind) or ())
        for attribute in sorted(reach.attributes):
            if path and not is_project(path) and not forbidden(path) and (why := forbidden(f"{path}.{attribute}")):
                raise self._refusal(why, f"{name}.{attribute}", next_step=_PASS_IT)

    def _check_inner_import(self, module: str, chain: Chain, reach: Reach, *, is_use: bool) -> None:
        name = chain[0] if chain else module
        try:
            known = not module.startswith(".") and importlib.import_module(module) is not None
        except ImportError:
            known = False
        if not known or is_project(module):
            raise self._refusal(f"comes from {module!r}, which the function imports itself", name,
                         next_step="import it at the top of the file")  # fmt: skip
        self._count(module, name)
        if why := forbidden(".".join((module, *chain))) or forbidden(module):
            raise self._refusal(why, name, next_step=_PASS_IT)
        self._walk(sys.modules[module], module, chain)
        value: object = sys.modules[module]
        for attribute in chain:
            value = getattr(value, attribute, None)
        if is_use and isinstance(value, ModuleType):
            raise self._module_as_value(name, value)
        if is_use and isinstance(value, type):
            self._check_class_as_value(value, name, reach)

    def _module(self, module: ModuleType, name: str, chains: Iterable[Chain]) -> Document:
        chains = sorted(chains)
        if is_project(module.__name__):
            return self._project_module(module, name, chains)
        self._count(module.__name__, name)
        if () in chains:
            if why := forbidden(module.__name__):
                raise self._refusal(why, name, next_step=_PASS_IT)
            raise self._module_as_value(name, module)
        needed = {module.__name__}
        for chain in chains:
            needed |= self._walk(module, name, chain)
        others = sorted(map(checkout_name, needed - {module.__name__}))
        return {"module": [checkout_name(module.__name__), *others]}

    def _module_as_value(self, name: str, module: ModuleType) -> Unfingerprintable:
        return self._refusal("is a module used as a value", name, value=module.__name__,
                             next_step="name what is needed of it, as in module.function")  # fmt: skip

    def _project_module(self, module: ModuleType, name: str, chains: list[Chain]) -> Document:
        if () in chains:
            raise self._refusal("is a module of the project used as a value", name, value=module.__name__,
                         next_step="name what is needed of it, as in module.helper")  # fmt: skip
        members: dict[str, Document] = {}
        for attribute in sorted({chain[0] for chain in chains}):
            if not hasattr(module, attribute):
                raise self._refusal(f"has no {attribute!r}", name, value=module.__name__)
            rest = {chain[1:] for chain in chains if chain[0] == attribute}
            members[attribute] = self.bind(getattr(module, attribute), f"{name}.{attribute}", rest)
        return {"namespace": members}

    def _walk(self, value: object, name: str, chain: Chain) -> set[str]:
        """Check every attribute along a chain from a module or class; returns the modules on it."""
        passed: set[str] = set()
        path = value.__name__ if isinstance(value, ModuleType) else ".".join(path_of(value) or ())
        for attribute in chain:
            if not isinstance(value, ModuleType | type):
                break
            path, name, value = f"{path}.{attribute}", f"{name}.{attribute}", getattr(value, attribute, None)
            if isinstance(value, ModuleType):
                if is_project(value.__name__):
                    raise self._refusal("is a module of the project inside a package", name, value=value.__name__)
                path = value.__name__
                self._count(path, name)
                passed.add(path)
            elif isinstance(value, type):
                path = ".".join(path_of(value) or (path,))
            if why := forbidden(path) or forbidden_object(value):
                raise self._refusal(why, name, next_step=_PASS_IT)
        return passed

    def _outside(self, value: object, name: str, chains: Iterable[Chain]) -> Document:
        """A function or class of a package or of Python."""
        if why := forbidden_object(value):
            raise self._refusal(why, name, next_step=_PASS_IT)
        found = importable(value)
        if found is None or is_project(found[0]):
            raise self._refusal(f"holds a value of type {type(value).__name__}, which cannot be written down", name,
                         value=value, next_step="make it a constant of a plain type, or a parameter")  # fmt: skip
        self._count(found[0], name)
        for chain in sorted(chains):
            self._walk(value, name, chain)
        return {"import": [checkout_name(found[0]), found[1]]}

    def _count(self, module: str, name: str) -> None:
        if is_foreign_namesake(module):
            raise self._refusal(f"comes from {module!r}, whose name is also that of a module of Headrace in fingerprints", name,
                         next_step="copy what the function uses into a module of the project")  # fmt: skip
        packages = distributions_of(module)
        for package in packages:
            if version_of(package) is None:
                packages = ()
        if not packages:
            raise self._refusal(
                f"comes from {module!r}, whose version is not known", name, next_step="install it as a package"
            )
        self._reached |= set(packages)

    def _count_constant(self, value: object) -> None:
        module = type(value).__module__
        if module.startswith("numpy"):
            self._reached.add("numpy")

    def _refusal(self, why: str, name: str, *, value: object = None, next_step: str = "") -> Unfingerprintable:
        shown = None if value is None else repr(value)[:200]
        return Unfingerprintable(why, function=self._name, variable=name, value=shown, next_step=next_step)


def _contents(function: FunctionType) -> dict[str, object]:
    """The enclosed variables of a function that have values."""
    found: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _outer(reach: Reach, values: Mapping[str, object]) -> Outer:
    def at(chain: tuple[str, ...]) -> object:
        value = values.get(chain[0], getattr(builtins, chain[0], _NOTHING))
        for attribute in chain[1:]:
            value = getattr(value, attribute, _NOTHING)
        return value

    return Outer(
        is_singleton=lambda chain: chain[0] in reach.names and isinstance(at(chain), type | enum.Enum | ModuleType),
        is_set=lambda name: name in reach.names and isinstance(values.get(name), Set),
    )
