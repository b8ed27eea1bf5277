"""Errors of workers as JSON documents.

An error that a user caused is a result, not a crash: raised in a worker, Beam would retry it, wrap it and print it
with its own stack. As a document it is raised again, complete, where the job was started.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from transforms.documents import document_part, parse_document
from transforms.errors import DataError, HeadraceError

Document = Mapping[str, object]


def read_object(content: bytes, where: str) -> dict[str, Any]:
    """The JSON object in ``content``, found at ``where``. Raises :class:`DataError` for anything else."""
    try:
        found = parse_document(content, "result of a worker").fields((), None).value
    except DataError as error:
        error.where = f"{where}: {error.where}"
        raise
    return cast("dict[str, Any]", found)


def error_document(error: HeadraceError) -> Document:
    """An error's class and fields."""
    fields = {"what": error.what, "where": error.where, "allowed": error.allowed, "next_step": error.next_step}
    return {"kind": type(error).__name__, "value": None if error.value is None else str(error.value), **fields}


_TEXTS = ("where", "allowed", "next_step")
_MOST_CHARACTERS = 1 << 24


def error_from_document(document: object) -> HeadraceError:
    """The error of a document, of the same class, or a DataError if that class is not loaded.

    Raises :class:`DataError` for an invalid document.
    """
    part = document_part(document, "error of a worker").fields(("kind", "what", "value", *_TEXTS))
    kinds = {kind.__name__: kind for kind in _subclasses(HeadraceError)}
    kind = kinds.get(part.at("kind").text(), DataError)
    texts = {key: part.at(key).text(most=_MOST_CHARACTERS) for key in _TEXTS}
    value = part.at("value")
    return kind(part.at("what").text(most=_MOST_CHARACTERS),
                value=None if value.value is None else value.text(most=_MOST_CHARACTERS), **texts)  # fmt: skip


def _subclasses(kind: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _subclasses(child)
