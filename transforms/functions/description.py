"""A function and all that it reaches as lines of text, one per attribute that its result can depend on.

Two processes describe the same bundle, one from the original objects, one from the rebuilt objects; if the lines differ,
the bundle does not describe the function.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence, Set
from types import (
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

from transforms.functions.bundle import DEEPEST, Wrapped
from transforms.functions.constant_text import text_of_constant
from transforms.functions.library_state import library_state
from transforms.functions.outside import importable, path_of
from transforms.functions.packages import is_project
from transforms.functions.reach import Chain, reach_of
from transforms.functions.refused import attributes_by_name
from transforms.functions.sources import compiled_class, compiled_function, is_of_its_file, source_of_function

#: (name, value)
Line = tuple[str, str]

_WHOLE: frozenset[Chain] = frozenset({()})
#: Attributes of classes that state their origin or follow from other attributes.
_LEFT_OUT = frozenset({"__module__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__qualname__", "_abc_impl",
                       "__static_attributes__", "__firstlineno__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__classdictcell__", "__conditional_annotations__"})  # fmt: skip
_DESCRIPTORS = (MemberDescriptorType, GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType)
_NOTHING = object()
_SENTINELS = (dataclasses.MISSING, Ellipsis, NotImplemented)
#: The beginning of the line of an object whose state is not visible.
INCOMPARABLE = "an object that cannot be compared, of type "


def describe(document: Mapping[str, Any], root: object, objects: Sequence[object],
              namespaces: Sequence[Mapping[str, object]], *, is_rebuilt: bool) -> list[Line]:  # fmt: skip
    """The lines of a bundle from its root and the objects of its definitions in this process.

    ``is_rebuilt``: the objects were made from the bundle, not from files that may have changed.
    """
    describer = _Describer(document["definitions"], objects, namespaces, is_rebuilt=is_rebuilt)
    describer.value("the function", root)
    for position in range(len(objects)):
        describer.definition(position)
    return [*describer.lines, *library_state(document["packages"], json.dumps(document["definitions"]))]


class _Describer:
    def __init__(
        self,
        definitions: Sequence[Mapping[str, Any]],
        objects: Sequence[object],
        namespaces: Sequence[Mapping[str, object]],
        *,
        is_rebuilt: bool,
    ) -> None:
        self.lines: list[Line] = []
        self._definitions = definitions
        self._objects = objects
        self._positions = {id(each): position for position, each in enumerate(objects)}
        self._within: list[int] = []
        self._namespaces = namespaces
        self._is_rebuilt = is_rebuilt
        self._reaches = [reach_of(_code(definition)) for definition in definitions]
        by_name = (set(attributes_by_name(definition["source"])) for definition in definitions)
        self._attributes = frozenset().union(*(reach.attributes for reach in self._reaches), *by_name)

    def definition(self, position: int) -> None:
        """A function or class of the bundle, and the values of its names."""
        definition, defined = self._definitions[position], self._objects[position]
        values = dict(self._namespaces[position])
        if isinstance(defined, FunctionType):
            self._defaults(definition["name"], defined)
            values.update(_cells(defined))
        elif isinstance(defined, type):
            self._class(definition["class"], defined)
        known = definition["names"].keys() | definition.get("free", {}).keys()
        for name, chains in sorted(self._reaches[position].names.items()):
            if definition["names"].get(name) == {"definition": 0} and isinstance(values.get(name), Wrapped | None):
                self._say(name, "definition 0")  # the root, whose name is bound after it was bundled
            elif name in known:
                self.value(name, values.get(name, _NOTHING), chains)
            elif name != definition.get("class"):
                self.value(name, getattr(builtins, name, _NOTHING))

    def value(self, path: str, value: object, chains: frozenset[Chain] | set[Chain] = _WHOLE) -> None:
        """Any value: a constant, a container, an object of the bundle or of a package."""
        value = _unwrapped(value)
        if value is _NOTHING:
            self._say(path, "nothing")
        elif id(value) in self._positions:
            self._say(path, f"definition {self._positions[id(value)]}")
        elif (text := text_of_constant(value)) is not None:
            self._say(path, text)
        elif id(value) in self._within or len(self._within) > DEEPEST:
            self._say(path, "something nested too deep")
        else:
            self._within.append(id(value))
            self._composed(path, value, chains)
            self._within.pop()

    def _say(self, path: str, text: str) -> None:
        self.lines.append((path, text))

    def _composed(self, path: str, value: object, chains: frozenset[Chain] | set[Chain]) -> None:
        if isinstance(value, list | tuple | dict | set | frozenset) and type(value).__module__ == "builtins":
            self._container(path, value)
        elif isinstance(value, ModuleType | SimpleNamespace):
            self._module(path, value, chains)
        elif isinstance(value, functools.partial):
            self._say(path, f"partial with attributes {sorted(vars(value))}")
            self.value(f"{path}.func", value.func)
            self.value(f"{path}.args", value.args)
            self.value(f"{path}.keywords", dict(value.keywords))
        elif isinstance(value, staticmethod | classmethod):
            self._say(path, type(value).__name__)
            self.value(path, value.__func__)
        elif isinstance(value, property):
            for part in ("fget", "fset", "fdel"):
                self.value(f"{path}.{part}", getattr(value, part))
        elif isinstance(value, functools.cached_property):
            self._say(path, f"cached property {value.attrname}")
            self.value(f"{path}.func", value.func)
        elif _is_named(value):
            self._import(path, value, chains)
        elif isinstance(value, FunctionType):
            self._function(path, value)
        elif isinstance(value, type):
            self._say(path, f"class {value.__qualname__}")
            self._class(path, value)
        elif isinstance(value, enum.Enum):
            self._say(path, f"{type(value).__qualname__}.{value.name}")
        elif is_project(str(type(value).__module__)):
            self._object(path, value)
        elif (parts := _parts(value)) is not None:
            self.value(f"the class of {path}", type(value))
            self.value(f"{path}, as it is pickled", parts)
        else:
            self._say(path, f"{INCOMPARABLE}{type(value).__qualname__}")

    def _container(self, path: str, value: Any) -> None:
        self._say(path, f"{type(value).__name__} of {len(value)}")
        if isinstance(value, dict):
            for number, (key, item) in enumerate(value.items()):
                shown = text_of_constant(key)
                if shown is None:
                    self.value(f"{path}.keys()[{number}]", key)
                else:
                    self._say(f"key {number} of {path}", shown)
                self.value(f"{path}[{shown or number}]", item)
        elif isinstance(value, list | tuple):
            for number, item in enumerate(value):
                self.value(f"{path}[{number}]", item)
        else:
            self._items(path, value)

    def _items(self, path: str, items: Set[object]) -> None:
        """The lines of each item of a set, in an order that does not depend on the process."""
        outer, found = self.lines, []
        for item in items:
            self.lines = []
            self.value(f"{path}{{...}}", item)
            found.append(self.lines)
        self.lines = [*outer, *(line for lines in sorted(found) for line in lines)]

    def _module(self, path: str, value: object, chains: frozenset[Chain] | set[Chain]) -> None:
        """The attributes taken from a module, along each chain through modules and classes."""
        for chain in sorted(chains):
            found, name = value, path
            for attribute in chain:
                if not isinstance(found, ModuleType | SimpleNamespace | type) or id(found) in self._positions:
                    break
                found, name = getattr(found, attribute, _NOTHING), f"{name}.{attribute}"
            if isinstance(found, ModuleType | SimpleNamespace):
                self._say(name, "a module")
            elif isinstance(found, tuple) and type(found) is not tuple:
                self._say(name, f"{type(found).__qualname__} {tuple(found)!r}")
            else:
                self.value(name, found)

    def _import(self, path: str, value: object, chains: frozenset[Chain] | set[Chain] = _WHOLE) -> None:
        """An object of a package, by its own name and code; of a class the attributes that the function may take."""
        named = ".".join(path_of(value) or (type(value).__module__, type(value).__qualname__))
        self._say(path, f"{named}{_digest_of_code(value)}{_details(value)}")
        if isinstance(value, type):
            taken = self._attributes | {chain[0] for chain in chains if chain}
            for attribute in sorted(taken):
                found = getattr(value, attribute, _NOTHING)
                if found is not _NOTHING:
                    of = ".".join(path_of(found) or (type(found).__qualname__,))
                    self._say(f"{path}.{attribute}", f"{of}{_digest_of_code(found)}")

    def _function(self, path: str, function: FunctionType) -> None:
        """A function that is not a definition: a method, or one that the standard library made."""
        home = str(function.__globals__.get("__name__") or "__main__")
        is_seen = is_project(home) and (self._is_rebuilt or is_of_its_file(function))
        source = source_of_function(function) if is_seen else None
        self._say(path, source or f"code {_digest(function.__code__)}")
        if source is not None and not any(function.__globals__ is each for each in self._namespaces):
            self._say(path, "among other globals")
        self._defaults(path, function)
        for name, value in sorted(_cells(function).items()):
            if name != "__class__" and not name.startswith("_type_"):  # its own class, and annotations
                self.value(f"{path}: {name}", value)

    def _defaults(self, path: str, function: FunctionType) -> None:
        for number, value in enumerate(function.__defaults__ or ()):
            self.value(f"default {number + 1} of {path}", value)
        for name, value in sorted((function.__kwdefaults__ or {}).items()):
            self.value(f"default of {path}, {name}", value)
        for name in sorted(vars(function).keys() & self._attributes):
            self.value(f"{path}.{name}", vars(function)[name])

    def _object(self, path: str, value: object) -> None:
        """An instance of a class of the project: its class and its state."""
        self.value(f"the class of {path}", type(value))
        state = dict(getattr(value, "__dict__", {}))
        for kind in type(value).__mro__:
            for name, slot in vars(kind).items():
                if isinstance(slot, MemberDescriptorType) and hasattr(value, name):
                    state[name] = getattr(value, name)
        self._say(f"the attributes of {path}", ", ".join(sorted(state)))
        for name in sorted(state):
            self.value(f"{path}.{name}", state[name])

    def _class(self, path: str, kind: type) -> None:
        for number, base in enumerate(kind.__bases__):
            self.value(f"base {number + 1} of {path}", base)
        self.value(f"the metaclass of {path}", type(kind))
        self._say(f"{path}.__name__", kind.__name__)
        members: Mapping[str, enum.Enum] = kind.__members__ if isinstance(kind, enum.EnumMeta) else {}
        for name, member in members.items():
            self._member(f"{path}.{name}", name, member)
        for name, value in sorted(vars(kind).items()):
            if name in _LEFT_OUT or name in members or (members and _is_of_enums(name, value)):
                continue
            if name == "__dataclass_fields__":
                self._fields(path, value)
            elif isinstance(value, _DESCRIPTORS):
                self._say(f"{path}.{name}", f"{type(value).__name__} {value.__name__}")
            else:
                self.value(f"{path}.{name}", value)
        self._annotations(path, kind)

    def _member(self, path: str, name: str, member: enum.Enum) -> None:
        self._say(path, f"member {member.name}")
        for attribute, value in sorted(vars(member).items()):
            if attribute not in ("_name_", "__objclass__", "_sort_order_"):
                self.value(path if attribute == "_value_" else f"{path}.{attribute}", value)

    def _fields(self, path: str, fields: Mapping[str, Any]) -> None:
        for name, field in fields.items():
            kinds = [field._field_type, field.init, field.repr, field.hash, field.compare, field.kw_only]
            shown = ("missing" if kind is dataclasses.MISSING else str(kind) for kind in kinds)
            self._say(f"field {path}.{name}", " ".join(shown))
            for part in ("default", "default_factory"):
                self.value(f"the {part.replace('_', ' ')} of {path}.{name}", getattr(field, part))
            self.value(f"the metadata of {path}.{name}", dict(field.metadata))

    def _annotations(self, path: str, kind: type) -> None:
        """The names of annotations; their values are in the source of the class."""
        self._say(f"the annotations of {path}", ", ".join(inspect.get_annotations(kind)))


def _code(definition: Mapping[str, Any]) -> CodeType:
    if "class" in definition:
        return compiled_class(definition["source"])
    return compiled_function(definition["source"], list(definition["free"]))


def _cells(function: FunctionType) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            found[name] = _NOTHING
    return found


def _unwrapped(value: object) -> object:
    """The function that a bundle holds for an operator or a cache."""
    while True:
        if isinstance(value, Wrapped):
            value = value.function
        elif isinstance(value, functools._lru_cache_wrapper) and is_project(
            str(getattr(value.__wrapped__, "__globals__", {}).get("__name__") or "__main__")
        ):
            value = value.__wrapped__
        else:
            return value


def _is_named(value: object) -> bool:
    """Whether the name suffices: an object of a package, a descriptor, a sentinel, a type's annotation."""
    path = importable(value)
    if path is not None and not is_project(path[0]):
        return True
    is_sentinel = any(value is each for each in _SENTINELS)
    return is_sentinel or isinstance(value, _DESCRIPTORS) or bool(_details(value))


def _parts(value: object) -> object:
    """The parts of a package's object by the pickle protocol; None if it cannot be pickled."""
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # of any type: each package refuses in its own way
        return None
    if isinstance(reduced, str):
        return reduced
    made, arguments, *rest = reduced
    return [made, arguments, *(part if isinstance(part, dict | tuple | None) else list(part) for part in rest)]


def _is_of_enums(name: str, value: object) -> bool:
    """Whether an attribute of an enumeration is the machinery's own."""
    is_special = name.startswith("_") and name.endswith("_")
    return is_special and not isinstance(value, FunctionType | staticmethod | classmethod | property)


def _details(value: object) -> str:
    """The distinguishing details of standard library objects that classes hold."""
    kind = type(value)
    if kind.__module__ in ("typing", "types", "dataclasses") and kind.__qualname__ != "ModuleType":
        return "" if " at 0x" in repr(value) else f" {value!r}"
    if kind.__qualname__ == "_tuplegetter":
        reduced: Any = value.__reduce__()
        return f" {reduced[1][0]}"
    return ""


def _digest_of_code(value: object) -> str:
    inner = getattr(value, "__func__", value)
    return f" {_digest(inner.__code__)}" if isinstance(inner, FunctionType) else ""


def _digest(code: CodeType) -> str:
    """The digest of a code object without its position."""
    digest = hashlib.sha256()
    waiting = [code]
    while waiting:
        one = waiting.pop()
        constants = [each for each in one.co_consts if not isinstance(each, CodeType | frozenset)]
        names = (
            one.co_names,
            one.co_varnames,
            one.co_freevars,
            one.co_cellvars,
            one.co_argcount,
            one.co_kwonlyargcount,
        )
        digest.update(one.co_code + repr((names, constants)).encode("utf-8", "surrogatepass"))
        waiting += [each for each in one.co_consts if isinstance(each, CodeType)]
    return digest.hexdigest()[:12]
