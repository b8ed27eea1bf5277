"""Times as options give them."""

from __future__ import annotations

from datetime import UTC, datetime

from transforms.errors import InputError


def moment(option: str, text: str) -> datetime | None:
    """An ISO 8601 time, in UTC unless it says otherwise; None for no text. Raises :class:`InputError`."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InputError("not a time", where=option, value=text, allowed="ISO 8601, such as 2026-03-02T18:00") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
