"""Bring a catalog's schema up to date, inside the caller's transaction.

An empty catalog gets the tables of :mod:`warehouse.catalog.schema` at once; an older one is migrated by Alembic. A test compares both.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect, text
from sqlalchemy.dialects import registry
from sqlalchemy.schema import CreateIndex, CreateTable

from warehouse.catalog.migrations import HEAD
from warehouse.catalog.schema import metadata
from warehouse.errors import CatalogVersionError

FOLDER = Path(__file__).with_name("migrations")
#: The revisions before the first release; no migration starts from them.
_UNRELEASED = frozenset((*(f"{number:04}" for number in range(1, 16)), "r0001", "r0002"))
#: Alembic's own table, as it creates it.
_VERSION_TABLE = """
    CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))
"""


def migrate(connection: Connection, where: str) -> None:
    """Upgrade the schema to :data:`warehouse.catalog.migrations.HEAD`.

    Only an older schema loads Alembic; one that is up to date costs one query. Raises :class:`CatalogVersionError` for a revision
    that cannot be upgraded.
    """
    revision = current_revision(connection)
    if revision == HEAD:
        return
    if revision is None:
        _create(connection)
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
    try:
        ScriptDirectory.from_config(config).get_revision(revision)
    except CommandError as error:
        raise CatalogVersionError("the catalog was written by a newer Headrace", where=where, value=revision,
                                  allowed=f"up to {HEAD}", next_step="upgrade Headrace") from error  # fmt: skip
    command.upgrade(config, "head")


def _create(connection: Connection) -> None:
    """Create all tables of an empty catalog, with the newest revision."""
    for statement in _creation(f"{connection.dialect.name}.{connection.dialect.driver}"):
        connection.exec_driver_sql(statement)
    connection.execute(text("INSERT INTO alembic_version (version_num) VALUES (:head)"), {"head": HEAD})


@cache
def _creation(driver: str) -> tuple[str, ...]:
    """The statements that create all tables, for a database and its driver such as ``sqlite.pysqlite``."""
    dialect = registry.load(driver)()
    made: list[CreateTable | CreateIndex] = []
    for table in metadata.sorted_tables:
        made += [CreateTable(table), *map(CreateIndex, table.indexes)]
    return (*(str(part.compile(dialect=dialect)) for part in made), _VERSION_TABLE)


def current_revision(connection: Connection) -> str | None:
    """The catalog's revision; None for a catalog without tables."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision
