"""What full passes found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table of analyses."""
    op.create_table(
        "analyses",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("operator", sa.String(length=255), nullable=False),
        sa.Column("expression", sa.Text(), nullable=False),
        sa.Column("table_name", sa.String(length=255), nullable=False),
        sa.Column("start_at", sa.Float(), nullable=False),
        sa.Column("end_at", sa.Float(), nullable=False),
        sa.Column("partitions", sa.JSON(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("artifact", sa.String(length=64), nullable=False),
        sa.Column("secs", sa.Float(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_analyses_table_name_tables")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_analyses")),
    )
    op.create_index(op.f("ix_analyses_fingerprint"), "analyses", ["fingerprint"], unique=False)
    op.create_index(op.f("ix_analyses_artifact"), "analyses", ["artifact"], unique=False)
