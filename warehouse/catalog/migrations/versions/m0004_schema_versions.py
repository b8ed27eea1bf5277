"""The schema of each version of a table, levels of folders, and digests of equal values in other types."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0006"
down_revision = "r0005"

#: The schema of a table is that of its newest change; those of older versions are not known.
_NEWEST = """
    UPDATE changes SET "schema" = (SELECT columns FROM tables WHERE tables.name = changes.table_name)
    WHERE table_version = (SELECT max(newest.table_version) FROM changes AS newest WHERE newest.table_name = changes.table_name)
    AND EXISTS (SELECT 1 FROM tables WHERE tables.name = changes.table_name AND tables.dropped_at IS NULL)
"""


def upgrade() -> None:
    """Add the columns, and record the present schemas."""
    op.add_column("changes", sa.Column("schema", sa.JSON(), nullable=True))
    op.add_column("fragments", sa.Column("levels", sa.JSON(), nullable=True))
    op.add_column("fragments", sa.Column("digest_types", sa.JSON(), nullable=True))
    op.execute(_NEWEST)
