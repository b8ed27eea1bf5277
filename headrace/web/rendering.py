"""Templates: every text of a page is escaped, and nothing in it is hidden."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from headrace.terminal.printable import printable
from headrace.terminal.units import brief_text, bytes_text, count_text, many, percent_text, secs_text


def environment() -> jinja2.Environment:
    """The environment of all templates: autoescaped, and strict about names."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters.update(
        bytes=bytes_text,
        count=count_text,
        secs=secs_text,
        brief_secs=brief_text,
        percent=percent_text,
        moment=_moment,
        many=_many,
        shorten=_shorten,
        as_json=_as_json,
    )
    return made


def _shown(value: Any) -> Any:
    """Invisible and control characters of a text as escapes; markup is that of templates."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _moment(at: float | datetime | None) -> str:
    if at is None:
        return "-"
    found = at if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC)
    return f"{found:%Y-%m-%d %H:%M}"


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _many(count: int, noun: str, plural: str = "") -> str:
    return many(count, noun, plural)


def address_part(name: str) -> str:
    """A name as a part of an address; empty if an address cannot have it: it is no text."""
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        return ""
