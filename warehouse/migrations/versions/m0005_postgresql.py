"""Strings compared byte by byte on PostgreSQL too; ids of tasks that are never given twice on SQLite too."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Change the collation of every VARCHAR (PostgreSQL), and build ``tasks`` anew with AUTOINCREMENT (SQLite)."""
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        with op.batch_alter_table("tasks", recreate="always", table_kwargs={"sqlite_autoincrement": True}):
            pass
        return
    inspector = sa.inspect(connection)
    for table in inspector.get_table_names():
        if table == "alembic_version":
            continue
        for column in inspector.get_columns(table):
            if isinstance(column["type"], sa.String) and column["type"].length is not None:
                length = column["type"].length
                op.execute(f'ALTER TABLE "{table}" ALTER COLUMN "{column["name"]}" TYPE VARCHAR({length}) COLLATE "C"')
