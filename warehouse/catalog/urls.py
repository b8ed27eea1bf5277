"""Catalog URLs: which database and driver one means, and how it is shown without its secrets.

A URL that is written wrong may hold its password anywhere. So nothing of such a one is shown but its scheme, and of one that is
written well only what cannot be a secret.
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
#: A shorter secret is not looked for in what a driver says: too much else would be hidden.
_SHORTEST = 4
_WHERE = "the catalog's URL"

_SECRET_OPTIONS = re.compile(r"\b((?:ssl)?password|passfile)(\s*=\s*)[^&\s]*", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?<=://)[^/?#@\s]*:[^\s]*@")
#: ``postgresql://user:password@host:port/database?options``, each part written as URLs ask.
_POSTGRESQL = re.compile(
    r"postgres(?:ql)?(?P<driver>\+\w+)?://"
    r"(?:(?P<user>[^\s:/?#@\[\]]*)(?::[^\s:/?#@\[\]]*)?@)?"
    r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]]*)(?::[0-9]+)?"
    r"(?:/[^\s?#@&=]*)?(?:\?[^\s#@]*)?"
)
#: Of databases only: in a URL without a scheme the first colon may stand within the password.
_SCHEME = re.compile(r"(?:postgres|sqlite|mysql|mariadb|oracle|mssql)[a-z0-9+]*(?=:)", re.IGNORECASE)
#: Options of libpq that hold no secret; the values of others are not shown.
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
    """The URL of a catalog in SQLite or in PostgreSQL by psycopg 3, which ``postgres://`` and ``postgresql://`` mean.

    Raises :class:`InputError`, which shows no password, for any other text.
    """
    if url.startswith("postgres"):
        found = _POSTGRESQL.fullmatch(url)
        if found is None:
            raise _refused(url, "a user or a password in a URL is percent-encoded, a port is a number",
                           next_step="write @ as %40, / as %2F, : as %3A, ? as %3F, # as %23")  # fmt: skip
        if found["driver"] not in (None, "+psycopg"):
            raise _refused(url, "PostgreSQL is reached through psycopg 3",
                           allowed="postgresql://user:password@host:port/database")  # fmt: skip
        url = f"postgresql+psycopg{url[url.index('://') :]}"
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        raise _refused(url, "not a catalog URL") from None
    if backend not in ("sqlite", "postgresql"):
        raise _refused(url, "not a catalog URL")
    if backend == "sqlite" and (parsed.host or parsed.username or parsed.password or parsed.port or parsed.query):
        raise _refused(url, "not a catalog URL: a file has no host, no user and no options",
                       next_step="write three slashes and a path")  # fmt: skip
    return parsed


def _refused(url: str, what: str, *, allowed: str = ALLOWED, next_step: str = "") -> InputError:
    return InputError(what, where=_WHERE, value=outline(url), allowed=allowed, next_step=next_step)


def outline(url: str) -> str:
    """What may be shown of a URL that is not understood: the scheme, and all of it only where it names a plain file."""
    if url.startswith("sqlite") and not set(url) & set("@?#"):
        return url
    scheme = _SCHEME.match(url)
    return f"{scheme[0]}:{_HIDDEN}" if scheme else _HIDDEN


def shown_url(url: URL) -> str:
    """A URL that was understood, without its password and without the values of options that may be secret."""
    query = "&".join(
        f"{quote_plus(name)}={value if name in _SHOWN_OPTIONS and isinstance(value, str) else _HIDDEN}"
        for name, value in url.query.items()
    )
    plain = url.set(drivername=url.get_backend_name(), query={}).render_as_string(hide_password=True)
    return f"{plain}?{query}" if query else plain


def secrets_of(url: URL) -> frozenset[str]:
    """The texts in which the secrets of a URL may appear: as they are, and as URLs spell them."""
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
    """``text``, such as what a driver said about a URL, with ``secrets`` and all that looks like one replaced by ``***``."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return _SECRET_OPTIONS.sub(rf"\1\2{_HIDDEN}", _CREDENTIALS.sub(f"{_HIDDEN}@", text))
