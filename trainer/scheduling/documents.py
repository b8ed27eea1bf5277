"""JSON documents of events, jobs and orders: for the controller's log, and for messages between processes.

Documents are read strictly: each field of the type, with a value of its type, and no other. They are derived from the
annotations of the frozen values, so a new field is stored without further code.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from typing import Any

from trainer.document_field import DocumentField
from trainer.errors import TornCheckpoint
from trainer.scheduling.events import EVENT_TYPES, Event
from trainer.scheduling.job import Job
from trainer.scheduling.orders import (
    AskPosition,
    EndEpoch,
    GiveUp,
    Leave,
    Order,
    Refuse,
    Rejoin,
    StartEpoch,
    WritePart,
)
from trainer.scheduling.transitions import EventKind
from transforms.errors import InputError

_T = typing.TypeVar("_T")
_EVENTS: dict[str, type[Any]] = {str(kind): EVENT_TYPES[kind] for kind in EventKind}
_ORDERS: dict[str, type[Any]] = {
    "start": StartEpoch,
    "ask position": AskPosition,
    "end": EndEpoch,
    "write part": WritePart,
    "give up": GiveUp,
    "leave": Leave,
    "rejoin": Rejoin,
    "refuse": Refuse,
}
_KIND_NAMES = {cls: name for kinds in (_EVENTS, _ORDERS) for name, cls in kinds.items()}


def event_document(event: Event) -> dict[str, Any]:
    """The document of an event, the inverse of :func:`read_event`."""
    document: dict[str, Any] = _document(event)
    return document


def read_event(field: DocumentField) -> Event:
    """The event of a document. Raises :class:`TornCheckpoint` for an invalid one."""
    event: Event = _read_kind("an event", _EVENTS, field)
    return event


def order_document(order: Order) -> dict[str, Any]:
    """The document of an order, the inverse of :func:`read_order`."""
    document: dict[str, Any] = _document(order)
    return document


def read_order(field: DocumentField) -> Order:
    """The order of a document. Raises :class:`TornCheckpoint` for an invalid one."""
    order: Order = _read_kind("an order", _ORDERS, field)
    return order


def _read_kind(what: str, kinds: Mapping[str, Any], field: DocumentField) -> Any:
    """A value whose class the member ``kind`` names."""
    name = field.at("kind").text()
    if name not in kinds:
        raise TornCheckpoint(f"kind of {what} must be a known one", where=field.place, value=name[:80],
                             allowed=", ".join(kinds))  # fmt: skip
    rest = {key: member.value for key, member in field.members().items() if key != "kind"}
    return _reader(kinds[name])(DocumentField(rest, field.place))


def value_document(value: object) -> Any:
    """The document of a frozen value, which may hold events and orders; the inverse of :func:`read_value`."""
    return _document(value)


def read_value(kind: type[_T], field: DocumentField) -> _T:
    """The value of a frozen dataclass from its document. Raises :class:`TornCheckpoint` for an invalid one."""
    hint: Any = kind
    value: _T = _reader(hint)(field)
    return value


def job_document(job: Job) -> dict[str, Any]:
    """The document of a job, the inverse of :func:`read_job`."""
    document: dict[str, Any] = _document(job)
    return document


def read_job(field: DocumentField) -> Job:
    """The job of a document. Raises :class:`TornCheckpoint` for an invalid one."""
    return read_value(Job, field)


def _document(value: Any) -> Any:
    cls: Any = type(value)
    if cls in _AS_THEY_ARE:
        return value
    if cls is float:
        return str(value) if value == math.inf else value
    if issubclass(cls, Enum):
        return value.value
    if (names := _names(cls)) is not None:
        kind = {"kind": _KIND_NAMES[cls]} if cls in _KIND_NAMES else {}
        return kind | {name: _document(getattr(value, name)) for name in names}
    if issubclass(cls, Mapping):
        return [[_document(key), _document(item)] for key, item in value.items()]
    if cls is tuple:
        return [_document(item) for item in value]
    if cls is frozenset:
        return [_document(item) for item in sorted(value)]
    return value


_AS_THEY_ARE = frozenset({str, int, bool, types.NoneType})


@cache
def _names(cls: type) -> tuple[str, ...] | None:
    """The names of a dataclass's fields; None for another class."""
    return tuple(one.name for one in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else None


_Read = Callable[[DocumentField], Any]


@cache
def _reader(hint: Any) -> _Read:
    """The function that reads a value of type ``hint``."""
    if hint is Event:
        return read_event
    if hint == Order:
        return read_order
    if dataclasses.is_dataclass(hint):
        return _value_reader(typing.cast(type, hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return partial(_read_enum, hint)
    if hint in _PLAIN:
        plain: _Read = _PLAIN[hint]
        return plain
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (own,) = (_reader(one) for one in arguments if one is not types.NoneType)
        return lambda field: None if field.value is None else own(field)
    readers = tuple(_reader(one) for one in arguments if one is not ...)
    if typing.get_origin(hint) in (tuple, frozenset):
        kind = typing.get_origin(hint)
        return lambda field: kind(readers[0](item) for item in field.items())
    return partial(_read_mapping, readers[0], readers[1])


def _value_reader(cls: type) -> _Read:
    hints = typing.get_type_hints(cls)
    readers = {one.name: _reader(hints[one.name]) for one in dataclasses.fields(cls)}

    def read(field: DocumentField) -> Any:
        members = field.members()
        if readers.keys() != members.keys():
            raise TornCheckpoint("an object must have the members of its type", where=field.place,
                                 value=", ".join(sorted(map(str, members)))[:200], allowed=", ".join(readers))  # fmt: skip
        values = {name: own(members[name]) for name, own in readers.items()}
        try:
            return cls(**values)
        except InputError as error:
            raise TornCheckpoint("an object must have valid members, got others", where=field.place) from error

    return read


def _read_enum(hint: type[Enum], field: DocumentField) -> Enum:
    try:
        return hint(field.text())
    except ValueError:
        raise TornCheckpoint("a value must be one of its kind", where=field.place, value=field.text()[:80],
                             allowed=", ".join(str(one.value) for one in hint)) from None  # fmt: skip


def _read_mapping(read_key: _Read, read_item: _Read, field: DocumentField) -> dict[Any, Any]:
    pairs = [item.items() for item in field.items()]
    if any(len(pair) != 2 for pair in pairs):
        raise TornCheckpoint("a mapping must be pairs, got another list", where=field.place)
    found = {read_key(key): read_item(item) for key, item in pairs}
    if len(found) != len(pairs):
        raise TornCheckpoint("the keys of a mapping must be distinct", where=field.place)
    return found


def _read_float(field: DocumentField) -> float:
    return math.inf if field.value == "inf" else field.number()


def _read_bool(field: DocumentField) -> bool:
    if not isinstance(field.value, bool):
        raise TornCheckpoint("a value must be true or false", where=field.place, value=repr(field.value)[:80])
    return field.value


_PLAIN: dict[Any, Any] = {
    str: DocumentField.text,
    int: DocumentField.count,
    float: _read_float,
    bool: _read_bool,
}
