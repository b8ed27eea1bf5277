"""Compares every document that a command prints in this process with the JSON Schema of its screen, which the manual shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jsonschema

from headrace.reference.documents import shape_of
from headrace.terminal import output


@cache
def validator(kind: type) -> jsonschema.Draft202012Validator:
    """The validator of the documents of a screen."""
    return jsonschema.Draft202012Validator(shape_of(kind).schema())


def check_document(screen: object) -> None:
    """Raise :class:`AssertionError` for a document that differs from its schema."""
    found: Any = output.document(screen)
    for error in validator(type(screen)).iter_errors(found):
        raise AssertionError(f"{type(screen).__name__} at {error.json_path}: {error.message}, by {error.schema}")


@contextmanager
def documents_are_checked() -> Iterator[None]:
    """While it is open, each emitted screen is checked."""
    recorded = output._recorded

    def checked(screen: object) -> str:
        check_document(screen)
        return recorded(screen)

    output._recorded = checked
    try:
        yield
    finally:
        output._recorded = recorded
