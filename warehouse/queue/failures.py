"""Failures: why a component has no memo over a fragment, with a sample of events."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, get_args

import pyarrow as pa
import pyarrow.ipc as ipc

from transforms.derived_documents import Later, document_of, read_value
from transforms.documents import Part, document_part
from transforms.errors import InputError

#: ``raised``: an operator raised an exception; ``memory``, ``stalled``: the component exceeded a limit of the worker; ``lost``: its
#: child process ended, or too many workers were lost; ``data``: the raw data is damaged or changed; ``unreadable``: the worker's
#: machine could not read it; ``release``: the component has another release; ``defect``: a defect of Headrace.
FailureKind = Literal["raised", "memory", "stalled", "lost", "data", "unreadable", "release", "defect"]
#: Failures of attempts that did not run the component: another machine, or a later attempt, may succeed.
UNTRIED_KINDS: frozenset[FailureKind] = frozenset({"unreadable", "release"})

#: The largest sample that is kept.
SAMPLE_BYTES = 64 * 1024
_EVENT_CHARACTERS = 500
#: An error, expression or sample: a text of any characters, unchanged.
_Text = Annotated[str, partial(Part.text, most=1 << 24, any_character=True)]
#: The exception in an error: at its start, or within the text for a user's function.
_EXCEPTION = re.compile(r"(?:\w+: )?function [^;]* raised (\w+)|((?:[^\W\d]\w*\.)*[^\W\d]\w*)(?=:|$)")


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of one attempt.

    Attributes:
        kind: Its class.
        error: The exception's type and text in one line, or the exceeded limit.
        operator: The operator that ran.
        expression: The expression that ran.
        events: Rows of the fragment, ascending, on which the component still fails.
        sample: The raw columns of those rows as an Arrow IPC stream in base64; empty if there are none, or if it is larger
            than :data:`SAMPLE_BYTES`.
    """

    kind: FailureKind
    error: _Text
    operator: Later[_Text] = ""
    expression: Later[_Text] = ""
    events: Later[tuple[int, ...]] = ()
    sample: Later[_Text] = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(FailureKind):
            raise InputError(
                "kind of a failure must be a known one", value=self.kind, allowed=", ".join(get_args(FailureKind))
            )

    @property
    def is_untried(self) -> bool:
        """Whether the attempt ended before the component ran."""
        return self.kind in UNTRIED_KINDS

    @property
    def exception(self) -> str:
        """The exception's type; empty if the error names none."""
        found = _EXCEPTION.match(self.error)
        return (found[1] or found[2] or "") if found else ""

    @property
    def message(self) -> str:
        """The failure in one line, with the first event of the sample."""
        text = f"operator {self.operator}: " if self.operator else ""
        text += self.error + (f" in {self.expression}" if self.expression else "")
        rows = self.sample_table()
        if rows is None or not rows.num_rows:
            return text
        event = json.dumps(readable_rows(rows.slice(0, 1))[0], default=str, ensure_ascii=False)[:_EVENT_CHARACTERS]
        more = f" and {len(self.events) - 1} more" if len(self.events) > 1 else ""
        return f"{text}; event {self.events[0]}: {event}{more}"

    def sample_table(self) -> pa.Table | None:
        """The sample's rows, in the order of ``events``; None without a sample."""
        if not self.sample:
            return None
        with ipc.open_stream(base64.b64decode(self.sample)) as reader:
            return reader.read_all()

    def to_document(self) -> dict[str, Any]:
        """The failure as a JSON object."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def from_document(cls, document: object) -> Failure:
        """The inverse of :meth:`to_document`; missing fields are empty. Raises :class:`~transforms.errors.DataError`."""
        return read_value(cls, document_part(document, "failure"))


def readable_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Events as Python values, also values that Python cannot represent.

    Text that is not UTF-8 has its bytes escaped; a time outside Python's calendar is a number.
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
    """Rows as a failure's ``sample``; empty without rows, or if larger than :data:`SAMPLE_BYTES`."""
    if not rows.num_rows:
        return ""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    stored = sink.getvalue().to_pybytes()
    return base64.b64encode(stored).decode("ascii") if len(stored) <= SAMPLE_BYTES else ""
