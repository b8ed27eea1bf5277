"""Catalog URLs: which database and driver one means, and how it is shown without its secrets."""

from __future__ import annotations

import re

from transforms.errors import InputError

ALLOWED = "sqlite:///path/catalog.db, postgresql://user:password@host:port/database"

_CREDENTIALS = re.compile(r"(?<=://)([^:/?#@]*):.*@")
_SECRET_OPTIONS = re.compile(r"\b((?:ssl)?password|passfile)=[^&\s]*", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """``text`` (a URL, or what a driver said about one) with every password replaced by ``***``."""
    return _SECRET_OPTIONS.sub(r"\1=***", _CREDENTIALS.sub(r"\1:***@", text))


def with_driver(url: str) -> str:
    """``postgres://`` and ``postgresql://`` mean psycopg 3; other URLs are given back as they are.

    Raises :class:`InputError` for another driver of PostgreSQL, and for a password that is not written as URLs ask.
    """
    scheme, separator, rest = url.partition("://")
    if scheme.startswith("postgres") and rest.partition("?")[0].count("@") > 1:
        raise InputError("a user or a password in a URL is percent-encoded", where="the catalog's URL",
                         value=without_secrets(url), next_step="write @ as %40, / as %2F, : as %3A")  # fmt: skip
    if scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        return f"postgresql+psycopg{separator}{rest}"
    if scheme.startswith("postgresql+"):
        raise InputError("PostgreSQL is reached through psycopg 3", where="the catalog's URL",
                         value=without_secrets(url), allowed="postgresql://user:password@host:port/database")  # fmt: skip
    return url
