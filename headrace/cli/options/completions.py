"""Completion of names in a shell: models, tables, components and runs of the home.

Names come from a SQLite catalog and the folder of runs on this machine; a key press asks no server and no bucket. Names with characters that a
shell may read as its own are not offered: the script of zsh evaluates what it gets. Whatever fails offers nothing, since an error text would
appear in the line that is typed.
"""

from __future__ import annotations

import re
import sqlite3
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from headrace.cli.options.session import catalog_text, home_text

if TYPE_CHECKING:
    from warehouse.catalog.stored_names import Kind

_MOST: Final = 100
_SAFE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@+-]*")
_RUN: Final = re.compile(r"(.+)-v[1-9][0-9]{0,8}")
_SQLITE: Final = "sqlite:///"
_SETTINGS_FILE: Final = "headrace.toml"


def model_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Live models that begin so."""
    return _names(ctx, "model", incomplete)


def table_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Tables that begin so."""
    return _names(ctx, "table", incomplete)


def component_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Fingerprints of components that begin so."""
    return _names(ctx, "component", incomplete.lower())


def run_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Models with a run in the home that begin so."""
    try:
        found = {match[1] for one in (_home(ctx) / "runs").iterdir() if (match := _RUN.fullmatch(one.name))}
    except OSError:
        return []
    return _offered(sorted(name for name in found if name.startswith(incomplete)))


def catalog_file(home: Path, url: str) -> Path | None:
    """The file of the SQLite catalog of a local home; None: the catalog is on a server, or the settings of the home cannot be read.

    ``url``: that of the environment, which comes before the settings of the home.
    """
    if not url:
        try:
            text = (home / _SETTINGS_FILE).read_text(encoding="utf-8")
        except FileNotFoundError:
            text = ""
        except (OSError, ValueError):
            return None
        try:
            url = str(tomllib.loads(text).get("catalog_url", ""))
        except tomllib.TOMLDecodeError:
            return None
    if not url:
        return home / "catalog.db"
    return Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None


def _home(ctx: typer.Context) -> Path:
    return Path(home_text(str(ctx.params.get("home") or ""))).expanduser()


def _names(ctx: typer.Context, kind: Kind, prefix: str) -> list[str]:
    from warehouse.catalog.stored_names import stored_names

    catalog = catalog_file(_home(ctx), catalog_text())
    if catalog is None:
        return []
    try:
        return _offered(stored_names(catalog, kind, prefix, _MOST))
    except (sqlite3.Error, ValueError):
        return []


def _offered(names: Iterable[str]) -> list[str]:
    return [name for name in names if _SAFE.fullmatch(name)][:_MOST]
