"""The fields of a form, from the body of its request."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

#: The most fields of a form.
MOST_FIELDS = 50
_KIND = "application/x-www-form-urlencoded"


async def form_fields(request: Request) -> dict[str, str]:
    """The fields of a form by their names; of fields with one name the last.

    Raises :class:`~starlette.exceptions.HTTPException` for a body that is no whole form, has too many fields, or holds a NUL character.
    """
    if (
        request.headers.get("content-type", "").partition(";")[0].strip().lower() != _KIND
        or "content-encoding" in request.headers
    ):
        raise HTTPException(415, f"a form must have the type {_KIND} without compression")
    try:
        body = await request.body()
    except ClientDisconnect:
        raise HTTPException(400, "a form must be whole") from None
    try:
        fields = parse_qsl(
            body.decode("utf-8", "replace"), keep_blank_values=True, errors="replace", max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise HTTPException(400, f"a form must have at most {MOST_FIELDS} fields") from None
    if any("\0" in name or "\0" in value for name, value in fields):
        raise HTTPException(400, "a form must hold no NUL character")
    return dict(fields)
