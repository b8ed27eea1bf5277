"""The arguments of a command from Python values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path

from transforms.errors import InputError

#: The value of an option: a flag, a number, a text, a time, or several of them for an option that may be repeated.
Value = bool | int | float | str | date | datetime | Path | Sequence["Value"] | None


def arguments_of(options: Mapping[str, Value]) -> list[str]:
    """``test_end="2026-03-06"`` as ``--test-end=2026-03-06``.

    True is a flag, False and None are left out, a list or a tuple repeats its option, and a time is ISO 8601. Raises :class:`InputError` for another value.

    >>> arguments_of(
    ...     {"hosts": 2, "follow": True, "baseline": ["ctr_7d", "price"], "end": date(2026, 3, 5), "plan": None}
    ... )
    ['--hosts=2', '--follow', '--baseline=ctr_7d', '--baseline=price', '--end=2026-03-05']
    """
    found: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, list | tuple) else [value]:
            if one is True:
                found.append(flag)
            elif one is not None and one is not False:
                found.append(f"{flag}={_text(name, one)}")
    return found


def _text(name: str, value: Value) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, str | int | float | Path):
        return str(value)
    raise InputError("an option must be a flag, a number, a text, a time or a list of them", where=name, value=type(value).__name__,
                     next_step="training options are a mapping: config={...}")  # fmt: skip
