"""Bring a catalog's schema up to date, inside the caller's transaction."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from warehouse.catalog.migrations import HEAD
from warehouse.errors import CatalogVersionError

FOLDER = Path(__file__).with_name("migrations")
#: The revisions before the first release; no migration starts from them.
_UNRELEASED = frozenset((*(f"{number:04}" for number in range(1, 16)), "r0001", "r0002"))


def migrate(connection: Connection, where: str) -> None:
    """Upgrade the schema to :data:`warehouse.catalog.migrations.HEAD`.

    A schema that is up to date costs one query and does not load Alembic. Raises :class:`CatalogVersionError` for a revision
    that cannot be upgraded.
    """
    revision = current_revision(connection)
    if revision == HEAD:
        return
    if revision in _UNRELEASED:
        raise CatalogVersionError("the catalog was written before the first release", where=where, value=revision,
                                  allowed=HEAD, next_step="register the tables again, in a new home")  # fmt: skip
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    if revision is not None:
        try:
            ScriptDirectory.from_config(config).get_revision(revision)
        except CommandError as error:
            raise CatalogVersionError("the catalog was written by a newer Headrace", where=where, value=revision,
                                      allowed=f"up to {HEAD}", next_step="upgrade Headrace") from error  # fmt: skip
    command.upgrade(config, "head")


def current_revision(connection: Connection) -> str | None:
    """The catalog's revision; None for a catalog without tables."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision
