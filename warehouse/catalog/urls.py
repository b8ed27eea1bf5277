"""Catalog URLs: parsing them, and showing them without their secrets.

An invalid URL may hold its password anywhere, so only its scheme is shown; of a valid one, only the parts that cannot be
secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from sqlalchemy import URL
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from transforms.errors import InputError

ALLOWED = "sqlite:///path/catalog.db, postgresql://user:password@host:port/database"
_HIDDEN = "***"
#: Shorter secrets are not replaced in a driver's text: too much else would be hidden.
_SHORTEST = 4
_WHERE = "the catalog's URL"

_SECRET_OPTIONS = re.compile(r"\b((?:ssl)?password|passfile)(\s*=\s*)[^&\s]*", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?<=://)[^/?#@\s]*:[^\s]*@")
#: ``postgresql://user:password@host:port/database?options``, each part percent-encoded.
_POSTGRESQL = re.compile(
    r"postgres(?:ql)?(?P<driver>\+\w+)?://"
    r"(?:(?P<user>[^\s:/?#@\[\]]*)(?::[^\s:/?#@\[\]]*)?@)?"
    r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]*)(?::[0-9]+)?"
    r"(?:/[^\s?#@&=]*)?(?:\?[^\s#@]*)?"
)
#: Schemes of databases only: in a URL without a scheme the first colon may be part of the password.
_SCHEME = re.compile(r"(?:postgres|sqlite|mysql|mariadb|oracle|mssql)[a-z0-9+]*(?=:)", re.IGNORECASE)
#: Options of libpq whose values are not secret; other values are hidden.
_SHOWN_OPTIONS = frozenset(
    [
        "host",
        "hostaddr",
        "port",
        "user",
        "dbname",
        "sslmode",
        "sslrootcert",
        "connect_timeout",
        "application_name",
        "options",
        "target_session_attrs",
    ]
)


def parse_url(url: str) -> URL:
    """The URL of a catalog in SQLite, or in PostgreSQL through psycopg 3.

    Raises :class:`InputError`, without secrets, for any other text.
    """
    if url.startswith("postgres"):
        found = _POSTGRESQL.fullmatch(url)
        if found is None:
            raise _refused(url, "the user and password of a catalog URL must be percent-encoded, its port a number",
                           next_step="write @ as %40, / as %2F, : as %3A, ? as %3F, # as %23")  # fmt: skip
        if found["driver"] not in (None, "+psycopg"):
            raise _refused(url, "the driver of a PostgreSQL catalog must be psycopg 3",
                           allowed="postgresql://user:password@host:port/database")  # fmt: skip
        url = f"postgresql+psycopg{url[url.index('://') :]}"
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        raise _refused(url, "the catalog URL must be one of SQLite or PostgreSQL") from None
    if backend not in ("sqlite", "postgresql"):
        raise _refused(url, "the catalog URL must be one of SQLite or PostgreSQL")
    if backend == "sqlite" and (parsed.host or parsed.username or parsed.password or parsed.port or parsed.query):
        raise _refused(
            url, "a SQLite catalog URL must have no host, user or options", next_step="write three slashes and a path"
        )
    return parsed


def _refused(url: str, what: str, *, allowed: str = ALLOWED, next_step: str = "") -> InputError:
    return InputError(what, where=_WHERE, value=outline(url), allowed=allowed, next_step=next_step)


def outline(url: str) -> str:
    """An invalid URL without secrets: its scheme; the whole URL only if it is a plain SQLite path."""
    if url.startswith("sqlite") and not set(url) & set("@?#"):
        return url
    scheme = _SCHEME.match(url)
    return f"{scheme[0]}:{_HIDDEN}" if scheme else _HIDDEN


def shown_url(url: URL) -> str:
    """A valid URL without its password and the values of options that may be secret."""
    query = "&".join(
        f"{quote_plus(name)}={value if name in _SHOWN_OPTIONS and isinstance(value, str) else _HIDDEN}"
        for name, value in url.query.items()
    )
    plain = url.set(drivername=url.get_backend_name(), query={}).render_as_string(hide_password=True)
    return f"{plain}?{query}" if query else plain


def secrets_of(url: URL) -> frozenset[str]:
    """The secrets of a URL as they may appear in a text: plain and percent-encoded."""
    found = [url.password or "", *_hidden_values(url.query)]
    return frozenset(
        spelled
        for secret in found
        if len(secret) >= _SHORTEST
        for spelled in (secret, quote(secret, safe=""), quote_plus(secret), unquote(secret), unquote_plus(secret))
    )


def _hidden_values(query: Mapping[str, tuple[str, ...] | str]) -> Iterable[str]:
    for name, value in query.items():
        if name not in _SHOWN_OPTIONS:
            yield from (value,) if isinstance(value, str) else value


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """``text``, such as a driver's error, with ``secrets`` and all that looks like one replaced by ``***``."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return _SECRET_OPTIONS.sub(rf"\1\2{_HIDDEN}", _CREDENTIALS.sub(f"{_HIDDEN}@", text))
