"""Errors on the wire: a JSON object beside Flight's own message, from which the caller raises an error of the same kind.

A document names the classes of the error, the nearest first, so that a hold can be decided in another process. What comes from the
wire is only text in :class:`RemoteError`: no class is looked up and nothing is run.
"""

from __future__ import annotations

import json
from typing import Any

from trainer.errors import DamagedFrame
from transforms.errors import DataError, HeadraceError

#: Longer texts of an error are cut.
_MOST_CHARACTERS = 2_000
#: The longest line of a log.
_MOST_LINE = 400
#: The longest document.
MOST_ERROR_BYTES = 1 << 16


class RemoteError(HeadraceError):
    """An error of another process.

    ``kinds``: the names of its classes, the nearest first.
    """

    def __init__(self, what: str, *, kinds: tuple[str, ...], where: str = "", value: object = None, allowed: str = "",
                 next_step: str = "") -> None:  # fmt: skip
        super().__init__(what, where=where, value=value, allowed=allowed, next_step=next_step)
        self.kinds = kinds


class _Shown(str):
    """The repr of a value in another process, which is shown as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Unreachable(HeadraceError):
    """A service does not answer: it ended, it is starting, or the network is interrupted."""

    exit_status = 6


class BadAnswer(DataError):
    """What another process sent is no answer to what it was asked; nothing of it is used, and another process may be asked."""


def error_document(error: BaseException) -> dict[str, Any]:
    """The JSON object of an error."""
    if isinstance(error, RemoteError):
        kinds = list(error.kinds)
    else:
        kinds = [kind.__name__ for kind in type(error).__mro__ if issubclass(kind, BaseException)]
    if isinstance(error, HeadraceError):
        fields = {"what": error.what, "where": error.where, "allowed": error.allowed, "next_step": error.next_step,
                  "value": "" if error.value is None else _repr(error.value)}  # fmt: skip
    else:
        fields = {"what": str(error) or type(error).__name__, "where": "", "allowed": "", "next_step": "", "value": ""}
    return {"kinds": kinds, **{name: text[:_MOST_CHARACTERS] for name, text in fields.items()}}


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # a foreign type's own code
        return f"<{type(value).__name__} without a repr: {type(error).__name__}>"


def in_one_line(error: BaseException) -> str:
    """An error as one printable line of a log, whatever a client has sent."""
    if not isinstance(error, HeadraceError):
        return printable_line(f"{type(error).__name__}: {error}")
    value = "" if error.value is None else f", got {_repr(error.value)}"
    return printable_line(f"{error.what}{value}" + (f" ({error.where})" if error.where else ""))


def printable_line(text: str) -> str:
    """The begin of a text as one line of a log."""
    shown = text[:_MOST_LINE]
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in shown) + (
        "…" if len(text) > len(shown) else ""
    )


def to_bytes(error: BaseException) -> bytes:
    """The bytes of :func:`error_document`."""
    return json.dumps(error_document(error)).encode()


def from_bytes(content: bytes, service: str) -> RemoteError:
    """The error in a document. Raises :class:`BadAnswer` if it is not one."""
    try:
        if len(content) > MOST_ERROR_BYTES:
            raise ValueError(f"{len(content)} bytes")
        document = json.loads(content)
        kinds, texts = (
            document["kinds"],
            [document[name] for name in ("what", "where", "value", "allowed", "next_step")],
        )
        if not isinstance(kinds, list) or not all(isinstance(text, str) for text in (*kinds, *texts)):
            raise TypeError("its members must be texts")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadAnswer("a service must send its errors as documents", where=service, value=str(error)[:100],
                        next_step="run the same release of Headrace in all processes of a job") from None  # fmt: skip
    what, where, value, allowed, next_step = texts
    place = f"{service}: {where}" if where else service
    return RemoteError(
        what,
        kinds=tuple(kinds),
        where=place,
        value=_Shown(value) if value else None,
        allowed=allowed,
        next_step=next_step,
    )


def damaged_frame(error: RemoteError) -> DamagedFrame:
    """The damage that another process has found in what was sent to it."""
    value = str(error.value or "").strip("'")
    return DamagedFrame(error.what, value=value, allowed=error.allowed, next_step=error.next_step)
