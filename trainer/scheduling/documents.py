"""JSON documents of events, jobs and orders: for the controller's log, and for messages between processes.

They are derived from the annotations of the frozen values, so a new field is stored without further code.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from trainer.options.document_field import DocumentField
from trainer.scheduling.events import EVENT_TYPES, Event
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
from transforms.derived_documents import Derivation, Tagged

_T = TypeVar("_T")
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
_DERIVED: Final = Derivation(
    {Event: Tagged("kind", _EVENTS), Order: Tagged("kind", _ORDERS)}, with_pairs=True, with_infinity=True
)


def value_document(value: object) -> dict[str, Any]:
    """The document of a frozen value, which may be or hold events and orders; the inverse of :func:`read_value`."""
    document: dict[str, Any] = _DERIVED.document(value)
    return document


def read_value(kind: type[_T], field: DocumentField) -> _T:
    """The value of a frozen dataclass, an event or an order from its document. Raises :class:`TornCheckpoint` for an invalid one."""
    value: _T = _DERIVED.read_kind(kind, field)
    return value
