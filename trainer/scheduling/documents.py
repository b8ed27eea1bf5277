"""JSON documents of events, jobs and orders: for the controller's log, and for messages between processes.

Documents are read strictly: each field of the type, with a value of its type, and no other. They are derived from the
annotations of the frozen values, so a new field is stored without further code.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
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
_KINDS = {str(kind): kind for kind in EventKind}
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
_ORDER_NAMES = {cls: name for name, cls in _ORDERS.items()}


def event_document(event: Event) -> dict[str, Any]:
    """The document of an event, the inverse of :func:`read_event`."""
    return {"kind": str(event.kind), **_document(event)}


def read_event(field: DocumentField) -> Event:
    """The event of a document. Raises :class:`TornCheckpoint` for an invalid one."""
    name = field.at("kind").text()
    if name not in _KINDS:
        raise TornCheckpoint("kind of an event must be a known one", where=field.place, value=name[:80],
                             allowed=", ".join(_KINDS))  # fmt: skip
    event: Event = _read(EVENT_TYPES[_KINDS[name]], _without_kind(field))
    return event


def order_document(order: Order) -> dict[str, Any]:
    """The document of an order, the inverse of :func:`read_order`."""
    return {"kind": _ORDER_NAMES[type(order)], **_document(order)}


def read_order(field: DocumentField) -> Order:
    """The order of a document. Raises :class:`TornCheckpoint` for an invalid one."""
    name = field.at("kind").text()
    if name not in _ORDERS:
        raise TornCheckpoint("kind of an order must be a known one", where=field.place, value=name[:80],
                             allowed=", ".join(_ORDERS))  # fmt: skip
    order: Order = _read(_ORDERS[name], _without_kind(field))
    return order


def _without_kind(field: DocumentField) -> DocumentField:
    rest = {key: member.value for key, member in field.members().items() if key != "kind"}
    return DocumentField(rest, field.place)


def value_document(value: object) -> Any:
    """The document of a frozen value, the inverse of :func:`read_value`."""
    return _document(value)


def read_value(kind: type[_T], field: DocumentField) -> _T:
    """The value of a frozen dataclass from its document. Raises :class:`TornCheckpoint` for an invalid one."""
    value: _T = _read(kind, field)
    return value


def job_document(job: Job) -> dict[str, Any]:
    """The document of a job, the inverse of :func:`read_job`."""
    document: dict[str, Any] = _document(job)
    return document


def read_job(field: DocumentField) -> Job:
    """The job of a document. Raises :class:`TornCheckpoint` for an invalid one."""
    job: Job = _read(Job, field)
    return job


def _document(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {one.name: _document(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return [[_document(key), _document(item)] for key, item in value.items()]
    if isinstance(value, tuple):
        return [_document(item) for item in value]
    if isinstance(value, frozenset):
        return [_document(item) for item in sorted(value)]
    return str(value) if value == math.inf else value


@cache
def _hints(cls: type) -> dict[str, Any]:
    return {one.name: typing.get_type_hints(cls)[one.name] for one in dataclasses.fields(cls)}


def _read(hint: Any, field: DocumentField) -> Any:
    """The value of type ``hint`` at ``field``."""
    if dataclasses.is_dataclass(hint):
        return _read_value(typing.cast(type, hint), field)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _read_enum(hint, field)
    if hint in _PLAIN:
        return _PLAIN[hint](field)
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (own,) = (one for one in arguments if one is not types.NoneType)
        return None if field.value is None else _read(own, field)
    if typing.get_origin(hint) is tuple:
        return tuple(_read(arguments[0], item) for item in field.items())
    if typing.get_origin(hint) is frozenset:
        return frozenset(_read(arguments[0], item) for item in field.items())
    return _read_mapping(arguments, field)


def _read_value(cls: type, field: DocumentField) -> Any:
    hints, members = _hints(cls), field.members()
    if hints.keys() != members.keys():
        raise TornCheckpoint("an object must have the members of its type", where=field.place,
                             value=", ".join(sorted(map(str, members)))[:200], allowed=", ".join(hints))  # fmt: skip
    values = {name: _read(hint, members[name]) for name, hint in hints.items()}
    try:
        return cls(**values)
    except InputError as error:
        raise TornCheckpoint("an object must have valid members, got others", where=field.place) from error


def _read_enum(hint: type[Enum], field: DocumentField) -> Enum:
    try:
        return hint(field.text())
    except ValueError:
        raise TornCheckpoint("a value must be one of its kind", where=field.place, value=field.text()[:80],
                             allowed=", ".join(str(one.value) for one in hint)) from None  # fmt: skip


def _read_mapping(arguments: tuple[Any, ...], field: DocumentField) -> dict[Any, Any]:
    pairs = [item.items() for item in field.items()]
    if any(len(pair) != 2 for pair in pairs):
        raise TornCheckpoint("a mapping must be pairs, got another list", where=field.place)
    found = {_read(arguments[0], key): _read(arguments[1], item) for key, item in pairs}
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
