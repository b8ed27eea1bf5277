"""JSON documents of frozen dataclasses, read and written as their annotations say.

A field is a member of an object. A ``tuple`` or ``frozenset`` is a list, a ``Mapping`` an object, an enum its value, a ``datetime`` a text,
another dataclass an object of its own, and ``Any`` a JSON value as it is. ``Annotated`` says more: a function of a
:class:`~transforms.documents.Part` reads the value in place of the type (``Annotated[str, Part.digest]``), a :class:`Form` reads and writes
it, and a mark changes the field. A document is read strictly: members of the type, values of theirs, no others. What a class raises as an
:class:`~transforms.errors.InputError` is raised with the place of its object, and its method ``check_read(part)``, if it has one, raises
for members that contradict each other.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Annotated, Any, Final, TypeVar

from transforms.documents import MOST, Part
from transforms.errors import InputError

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Form:
    """How a document stores a value.

    Attributes:
        read: the value of a part; raises :class:`~transforms.errors.DataError`.
        write: the part of a value; None: the value itself.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tagged:
    """An object of one of several classes, which the member ``name`` tells apart by the keys of ``kinds``."""

    name: str
    kinds: Mapping[str, type[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Named:
    """The name of a field's member where it is not that of the field."""

    name: str


class Mark(Enum):
    """What a field's member is beside its value."""

    #: Left out where the value is the default.
    OMITTED = "omitted"
    #: Documents of earlier releases do not have it.
    LATER = "later"
    #: A dataclass that is the list of its fields.
    ROW = "row"


Omitted = Annotated[_T, Mark.OMITTED]
Later = Annotated[_T, Mark.LATER]
Row = Annotated[_T, Mark.ROW]
#: A SHA-256 in hexadecimal.
Digest = Annotated[str, Part.digest]
#: A text of at least one character.
Name = Annotated[str, Part.name]
#: A relative path that stays inside its folder, or none.
InsidePath = Annotated[str, Part.inside_path]
PathOrNone = Annotated[str, lambda part: part.inside_path() if part.value != "" else ""]


def whole(least: int = 0, most: int = MOST) -> Callable[[Part], int]:
    """The reader of an integer in [``least``, ``most``]."""
    return partial(Part.integer, least=least, most=most)


def number(least: float) -> Callable[[Part], float]:
    """The reader of a finite number from ``least`` on."""
    return partial(Part.number, least=least)


def one_of(*allowed: str) -> Callable[[Part], str]:
    """The reader of one of these texts."""
    return partial(Part.one_of, allowed=allowed)


class Derivation:
    """Reads and writes documents by annotations.

    Args:
        kinds: of annotations that several classes have, such as a protocol or a union.
        with_pairs: mappings are lists of keys and values, so that a key may have any type.
        with_infinity: a number may be the text "inf".
        with_others: members of other names are passed over.
    """

    def __init__(
        self,
        kinds: Mapping[Any, Tagged] = types.MappingProxyType({}),
        *,
        with_pairs: bool = False,
        with_infinity: bool = False,
        with_others: bool = False,
    ) -> None:
        self._kinds, self._with_pairs, self._with_others = dict(kinds), with_pairs, with_others
        self._tags = {cls: (one.name, tag) for one in self._kinds.values() for tag, cls in one.kinds.items()}
        self._forms: dict[Any, Form] = {float: Form(_read_infinite, _write_infinite)} if with_infinity else {}
        self._members: dict[type, _Members] = {}

    def document(self, value: Any) -> Any:
        """The JSON value of a dataclass, the inverse of :meth:`read`."""
        return self._object(type(value)).write(value)

    def read(self, kind: type[_T], part: Part, *, extra: Collection[str] = ()) -> _T:
        """The value of a dataclass; ``extra``: members that are not read. Raises :class:`~transforms.errors.DataError`."""
        value: _T = self._object(kind).read(part, extra)
        return value

    def read_kind(self, hint: Any, part: Part) -> Any:
        """The value of an annotation."""
        return self._form(hint).read(part)

    def _object(self, cls: type) -> _Members:
        if cls not in self._members:
            self._members[cls] = _Members(cls, self._form, self._tags.get(cls), self._with_others)
        return self._members[cls]

    def _form(self, hint: Any) -> Form:
        if hint not in self._forms:
            self._forms[hint] = self._made(hint)
        return self._forms[hint]

    def _made(self, hint: Any) -> Form:
        if hint in self._kinds:
            return self._tagged(self._kinds[hint])
        if dataclasses.is_dataclass(hint):
            members = self._object(typing.cast(type, hint))
            return Form(members.read, members.write)
        if hint in _PLAIN:
            return _PLAIN[hint]
        if isinstance(hint, type) and issubclass(hint, Enum):
            return Form(partial(_read_enum, hint), lambda value: value.value)
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is Annotated:
            return self._annotated(arguments[0], arguments[1:])
        if origin is typing.Literal:
            return Form(one_of(*arguments))
        if origin in (types.UnionType, typing.Union):
            (own,) = (self._form(one) for one in arguments if one is not types.NoneType)
            return _optional(own)
        if origin is tuple and arguments[-1] is not ...:
            return _tuple_row([self._form(one) for one in arguments])
        if origin in (tuple, frozenset):
            return _list(origin, self._form(arguments[0]))
        if origin is not Mapping:
            raise TypeError(f"a document has no form of {hint}")
        return (_pairs if self._with_pairs else _mapping)(*(self._form(one) for one in arguments))

    def _annotated(self, hint: Any, marks: tuple[Any, ...]) -> Form:
        for mark in marks:
            if isinstance(mark, Form):
                return mark
            if isinstance(mark, Tagged):
                return self._tagged(mark)
            if mark is Mark.ROW:
                return self._object(hint).row
            if callable(mark):
                return Form(mark, self._form(hint).write)
        return self._form(hint)

    def _tagged(self, kinds: Tagged) -> Form:
        tags = {cls: tag for tag, cls in kinds.kinds.items()}

        def read(part: Part) -> Any:
            stated = part.fields((kinds.name,), None).at(kinds.name).one_of(kinds.kinds)
            return self._object(kinds.kinds[stated]).read(part, (kinds.name,))

        def write(value: Any) -> Any:
            return {kinds.name: tags[type(value)], **self._object(type(value)).write(value)}

        return Form(read, write)


@dataclasses.dataclass(frozen=True, slots=True)
class _Member:
    """A field: its attribute and member; with ``is_omitted`` a value equal to ``default`` is not written."""

    attribute: str
    name: str
    form: Form
    is_required: bool
    is_omitted: bool
    default: Any


class _Members:
    """The members of a dataclass's object; the annotations are looked up at the first use, since a class may hold itself."""

    def __init__(self, cls: type, form: Callable[[Any], Form], tag: tuple[str, str] | None, with_others: bool) -> None:
        self._cls, self._form, self._with_others = cls, form, with_others
        self._tag = {} if tag is None else {tag[0]: tag[1]}
        self._found: tuple[_Member, ...] | None = None
        self._required: tuple[str, ...] = ()
        self._optional: tuple[str, ...] = ()

    def read(self, part: Part, extra: Collection[str] = ()) -> Any:
        members = self._each
        optional = (*self._optional, *extra) if extra else self._optional
        part.fields(self._required, None if self._with_others else optional)
        held: Any = part.value
        values = {
            one.attribute: one.form.read(part.at(one.name)) for one in members if one.is_required or one.name in held
        }
        return _built(self._cls, part, values)

    def write(self, value: Any) -> dict[str, Any]:
        document: dict[str, Any] = dict(self._tag)
        for one in self._each:
            own = getattr(value, one.attribute)
            if not (one.is_omitted and own == one.default):
                document[one.name] = own if one.form.write is None else one.form.write(own)
        return document

    @property
    def row(self) -> Form:
        """The list of the fields."""
        names, forms = [one.attribute for one in self._each], [one.form for one in self._each]

        def make(part: Part, values: list[Any]) -> Any:
            return _built(self._cls, part, dict(zip(names, values, strict=True)))

        return _row(forms, make, lambda value: [getattr(value, name) for name in names])

    @property
    def _each(self) -> tuple[_Member, ...]:
        if self._found is None:
            hints = typing.get_type_hints(self._cls, include_extras=True)
            self._found = tuple(self._member(one, hints[one.name]) for one in dataclasses.fields(self._cls))
            self._required = tuple(one.name for one in self._found if one.is_required)
            self._optional = tuple(one.name for one in self._found if not one.is_required)
        return self._found

    def _member(self, field: dataclasses.Field[Any], hint: Any) -> _Member:
        marks = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
        name = next((one.name for one in marks if isinstance(one, Named)), field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        is_required = Mark.OMITTED not in marks and Mark.LATER not in marks
        return _Member(field.name, name, self._form(hint), is_required, Mark.OMITTED in marks, default)


def _built(cls: type, part: Part, values: dict[str, Any]) -> Any:
    try:
        value = cls(**values)
    except InputError as error:
        raise part.refused_by(error) from error
    if (check := getattr(value, "check_read", None)) is not None:
        check(part)
    return value


def _optional(own: Form) -> Form:
    read, write = own.read, own.write
    return Form(
        lambda part: None if part.value is None else read(part),
        None if write is None else lambda value: None if value is None else write(value),
    )


def _list(kind: type[Any], item: Form) -> Form:
    read, write = item.read, item.write
    ordered: Callable[[Any], Any] = sorted if kind is frozenset else list
    return Form(
        lambda part: kind([read(one) for one in part.items()]),
        ordered if write is None else lambda value: [write(one) for one in ordered(value)],
    )


def _row(forms: list[Form], make: Callable[[Part, list[Any]], Any], items_of: Callable[[Any], Any]) -> Form:
    """A list of so many items, each of its own form."""

    def read(part: Part) -> Any:
        items = part.items(least=len(forms), most=len(forms))
        return make(part, [form.read(one) for form, one in zip(forms, items, strict=True)])

    return Form(read, lambda value: [_written(form, one) for form, one in zip(forms, items_of(value), strict=True)])


def _tuple_row(forms: list[Form]) -> Form:
    return _row(forms, lambda part, values: tuple(values), lambda value: value)


def _written(form: Form, value: Any) -> Any:
    return value if form.write is None else form.write(value)


def _mapping(key: Form, item: Form) -> Form:
    read_key, read, write = key.read, item.read, item.write
    return Form(
        lambda part: {read_key(part._part(name, name)): read(one) for name, one in part.entries()},
        dict if write is None else lambda value: {name: write(one) for name, one in value.items()},
    )


def _pairs(key: Form, item: Form) -> Form:
    pair = _tuple_row([key, item])

    def read(part: Part) -> dict[Any, Any]:
        pairs = [pair.read(one) for one in part.items()]
        found = dict(pairs)
        if len(found) != len(pairs):
            raise part.refused("a list that has each key once")
        return found

    return Form(read, lambda value: [[_written(key, name), _written(item, one)] for name, one in value.items()])


def _read_enum(hint: type[Enum], part: Part) -> Enum:
    return hint(part.one_of([one.value for one in hint]))


def _read_infinite(part: Part) -> float:
    return math.inf if part.value == "inf" else part.number(-math.inf)


def _write_infinite(value: Any) -> Any:
    return "inf" if value == math.inf else value


#: The forms of plain values.
_PLAIN: Final[Mapping[Any, Form]] = {
    str: Form(lambda part: part.text()),
    int: Form(lambda part: part.integer()),
    bool: Form(lambda part: part.boolean()),
    float: Form(lambda part: part.number(-math.inf)),
    datetime: Form(lambda part: part.moment(), datetime.isoformat),
    Any: Form(lambda part: part.value),
}

_STRICT: Final = Derivation()


def document_of(value: Any) -> Any:
    """The JSON object of a dataclass, the inverse of :func:`read_value`."""
    return _STRICT.document(value)


def read_value(kind: type[_T], part: Part, *, extra: Collection[str] = ()) -> _T:
    """The value of a dataclass at ``part``; ``extra``: members that are not read. Raises :class:`~transforms.errors.DataError`."""
    return _STRICT.read(kind, part, extra=extra)
