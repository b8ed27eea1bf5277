"""Why a component has no memo over a fragment, as whoever has to mend it wants to know it."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast, get_args

import pyarrow as pa
import pyarrow.ipc as ipc

from transforms.documents import Part, document_part
from transforms.errors import InputError

#: ``raised``: its operators did; ``memory``, ``stalled``: it took more than a worker allows; ``lost``: workers vanished while they
#: computed it; ``data``: the raw data is damaged or changed; ``unreadable``: the worker's machine could not read it;
#: ``release``: the component is of another release than the worker. ``defect``: an exception that is Headrace's own fault.
FailureKind = Literal["raised", "memory", "stalled", "lost", "data", "unreadable", "release", "defect"]
#: Nothing of the component was tried: the fault is the machine's, and another one, or this one later, may do better.
UNTRIED_KINDS: frozenset[FailureKind] = frozenset({"unreadable", "release"})

#: A larger sample is not kept.
SAMPLE_BYTES = 64 * 1024
_EVENT_CHARACTERS = 500
#: How errors name an exception: first, or (where it was a user's function) in the text of ours that stands around it.
_EXCEPTION = re.compile(r"(?:\w+: )?function [^;]* raised (\w+)|((?:[^\W\d]\w*\.)*[^\W\d]\w*)(?=:|$)")


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt.

    ``error``: the exception's type and text in one line, or what was exceeded. ``operator`` and ``expression``: what was running.
    ``events``: rows of the fragment, ascending, that are enough to make it fail so; ``sample``: those rows of the raw columns that
    the component reads, an Arrow IPC stream in base64 (empty: none is known, or it is larger than :data:`SAMPLE_BYTES`).
    """

    kind: FailureKind
    error: str
    operator: str = ""
    expression: str = ""
    events: tuple[int, ...] = ()
    sample: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(FailureKind):
            raise InputError("a failure is of a known kind", value=self.kind, allowed=", ".join(get_args(FailureKind)))

    @property
    def is_untried(self) -> bool:
        """Whether the attempt ended before the component itself could fail."""
        return self.kind in UNTRIED_KINDS

    @property
    def exception(self) -> str:
        """The exception's type; empty where none was raised, or none is named."""
        found = _EXCEPTION.match(self.error)
        return (found[1] or found[2] or "") if found else ""

    @property
    def message(self) -> str:
        """All of it on one line, with the first event of the sample."""
        text = f"operator {self.operator}: " if self.operator else ""
        text += self.error + (f" in {self.expression}" if self.expression else "")
        rows = self.sample_table()
        if rows is None or not rows.num_rows:
            return text
        event = json.dumps(readable_rows(rows.slice(0, 1))[0], default=str, ensure_ascii=False)[:_EVENT_CHARACTERS]
        more = f" and {len(self.events) - 1} more" if len(self.events) > 1 else ""
        return f"{text}; event {self.events[0]}: {event}{more}"

    def sample_table(self) -> pa.Table | None:
        """The sample's rows, in the order of ``events``; None where there is no sample."""
        if not self.sample:
            return None
        with ipc.open_stream(base64.b64decode(self.sample)) as reader:
            return reader.read_all()

    def to_document(self) -> dict[str, Any]:
        """The failure as a JSON object."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: object) -> Failure:
        """The inverse of :meth:`to_document`; what is not stated is empty. Raises :class:`~transforms.errors.DataError`."""
        part = document_part(document, "failure").fields(("kind", "error"), _OPTIONAL)
        kind = cast(FailureKind, part.at("kind").one_of(get_args(FailureKind)))
        texts = {name: _text(part.at(name)) for name in _TEXTS if part.has(name)}
        events = tuple(event.integer() for event in part.at("events").items()) if part.has("events") else ()
        return cls(kind, _text(part.at("error")), events=events, **texts)


def _text(part: Part) -> str:
    """What a component raised, which may hold any character, is kept as it is."""
    return part.text(most=_MOST_CHARACTERS, any_character=True)


_TEXTS = ("operator", "expression", "sample")
_OPTIONAL = (*_TEXTS, "events")
#: Of an error, an expression or a sample.
_MOST_CHARACTERS = 1 << 24


def readable_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Events as Python values, whatever they hold: what makes a component fail may be no value that Python has.

    Text that is not UTF-8 has its bytes escaped, a moment that no calendar reaches is its number.
    """
    return [{name: readable(rows.column(name)[row]) for name in rows.column_names} for row in range(rows.num_rows)]


def readable(value: pa.Scalar) -> Any:
    """One value of :func:`readable_rows`. Never raises."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_dictionary(kind):
        return readable(value.value)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return value.as_buffer().to_pybytes().decode("utf-8", "backslashreplace")
    if pa.types.is_struct(kind):
        return {kind.field(which).name: readable(value[which]) for which in range(kind.num_fields)}
    if pa.types.is_nested(kind) and hasattr(value, "values"):
        return [readable(item) for item in value.values]
    try:
        return value.as_py()
    except Exception:  # of many kinds: years beyond 9999, time zones that this machine does not know
        return str(getattr(value, "value", kind))


def encoded_sample(rows: pa.Table) -> str:
    """Rows as a failure's ``sample``; empty for none and for what is larger than :data:`SAMPLE_BYTES`."""
    if not rows.num_rows:
        return ""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    stored = sink.getvalue().to_pybytes()
    return base64.b64encode(stored).decode("ascii") if len(stored) <= SAMPLE_BYTES else ""
