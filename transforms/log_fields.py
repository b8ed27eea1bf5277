"""What a process works on, for the lines of its log: its job, run and role, and the task and partition of the moment.

Fields of the process are on all of its lines; others on those of the thread that is inside the block of :func:`log_fields`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

_OF_PROCESS: dict[str, str] = {}
_OF_BLOCK: ContextVar[Mapping[str, str]] = ContextVar("log_fields", default=MappingProxyType({}))


def set_process_fields(**fields: object) -> None:
    """Add fields of this process, or replace them; an empty one removes the field."""
    for name, value in fields.items():
        if value in ("", None):
            _OF_PROCESS.pop(name, None)
        else:
            _OF_PROCESS[name] = str(value)


@contextmanager
def log_fields(**fields: object) -> Iterator[None]:
    """Have the lines of this thread within the block have these fields, beside those of the blocks around it."""
    token = _OF_BLOCK.set({**_OF_BLOCK.get(), **{name: str(value) for name, value in fields.items()}})
    try:
        yield
    finally:
        _OF_BLOCK.reset(token)


def current_fields() -> dict[str, str]:
    """The fields of a line of this thread now."""
    return {**_OF_PROCESS, **_OF_BLOCK.get()}
