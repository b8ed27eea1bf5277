"""Shapes of JSON values as types: what a document's field may hold, and the JSON Schema that says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Shape:
    """A JSON value. Without a subclass: any value."""

    def schema(self) -> dict[str, Any]:
        """The JSON Schema (2020-12)."""
        return {}

    def text(self) -> str:
        """The words of a table."""
        return "any"


@dataclass(frozen=True)
class Simple(Shape):
    """A string, a number, a truth value or null, by its name in JSON Schema, perhaps one of some values."""

    name: str
    values: tuple[Any, ...] = ()
    form: str = ""

    def schema(self) -> dict[str, Any]:
        """The JSON Schema."""
        own: dict[str, Any] = {"type": self.name}
        return own | ({"enum": list(self.values)} if self.values else {}) | ({"format": self.form} if self.form else {})

    def text(self) -> str:
        """The name, or the values."""
        if self.values:
            return " or ".join(f'"{one}"' for one in self.values)
        return f"{self.name} ({self.form})" if self.form else self.name


@dataclass(frozen=True)
class Items(Shape):
    """A list."""

    of: Shape

    def schema(self) -> dict[str, Any]:
        """The JSON Schema."""
        return {"type": "array", "items": self.of.schema()}

    def text(self) -> str:
        """The words of a table."""
        return "list" if type(self.of) is Shape else f"list of {self.of.text()}"


@dataclass(frozen=True)
class Object(Shape):
    """An object: named fields, of which some may be left out, and perhaps others of one shape.

    Attributes:
        fields: shape by name.
        optional: the names that may be left out.
        others: the shape of fields by other names; None: there are none.
    """

    fields: Mapping[str, Shape] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    others: Shape | None = None

    def schema(self) -> dict[str, Any]:
        """The JSON Schema."""
        own: dict[str, Any] = {
            "type": "object",
            "properties": {name: one.schema() for name, one in self.fields.items()},
        }
        required = [name for name in self.fields if name not in self.optional]
        return own | {
            "required": required,
            "additionalProperties": False if self.others is None else self.others.schema(),
        }

    def text(self) -> str:
        """The words of a table."""
        return "object" if self.fields or self.others is None else f"object of {self.others.text()} by name"


@dataclass(frozen=True)
class Either(Shape):
    """One of several shapes."""

    of: tuple[Shape, ...]

    def schema(self) -> dict[str, Any]:
        """The JSON Schema."""
        return {"anyOf": [one.schema() for one in self.of]}

    def text(self) -> str:
        """The words of a table."""
        return " or ".join(dict.fromkeys(one.text() for one in self.of))


ANY = Shape()
NULL, TRUTH, NUMBER, WHOLE, TEXT = (Simple(name) for name in ("null", "boolean", "number", "integer", "string"))


def either(*shapes: Shape) -> Shape:
    """One of some shapes: objects become one object, in which a field that only some have may be left out."""
    flat: list[Shape] = []
    for shape in shapes:
        flat += [one for one in (shape.of if isinstance(shape, Either) else (shape,)) if one not in flat]
    if any(type(one) is Shape for one in flat):
        return ANY
    objects = [one for one in flat if isinstance(one, Object)]
    lists = [one for one in flat if isinstance(one, Items)]
    rest = [one for one in flat if not isinstance(one, Object | Items)]
    if len(objects) > 1:
        objects = [_one_object(objects)]
    if len(lists) > 1:
        lists = [Items(either(*(one.of for one in lists if one.of != NOTHING)))]
    found = [*objects, *lists, *(one for one in rest if one != NOTHING)]
    if NUMBER in found:
        found = [one for one in found if one != WHOLE]
    return found[0] if len(found) == 1 else Either(tuple(found)) if found else NOTHING


#: The items of an empty list.
NOTHING = Either(())


def _one_object(objects: list[Object]) -> Object:
    names = dict.fromkeys(name for one in objects for name in one.fields)
    fields = {name: either(*(one.fields[name] for one in objects if name in one.fields)) for name in names}
    optional = {name for name in names if any(name not in one.fields or name in one.optional for one in objects)}
    others = [one.others for one in objects if one.others is not None]
    return Object(fields, frozenset(optional), either(*others) if others else None)


def merged(first: Object, second: Object) -> Object:
    """The object of ``{**first, **second}``."""
    replaced = {name for name in second.fields if name not in second.optional}
    both = {
        name: either(first.fields[name], one) if name in first.fields and name in second.optional else one
        for name, one in second.fields.items()
    }
    optional = (first.optional - replaced) | {
        name for name in second.optional if name not in first.fields or name in first.optional
    }
    others = [one.others for one in (first, second) if one.others is not None]
    return Object({**first.fields, **both}, optional, either(*others) if others else None)
