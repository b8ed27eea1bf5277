"""Tables that follow a lake: its version, its live files, and where their rows are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "r0005"
down_revision = "r0004"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the three tables."""
    op.create_table(
        "lakes",
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("format", _string(16), nullable=False),
        sa.Column("lake_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("partition_by", _string(8), nullable=False),
        sa.Column("time_unit", _string(2), nullable=False),
        sa.Column("keys", sa.JSON(), nullable=False),
        sa.CheckConstraint("format IN ('delta', 'iceberg')", name=op.f("ck_lakes_format")),
        sa.CheckConstraint("partition_by IN ('hour', 'day')", name=op.f("ck_lakes_partition_by")),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_lakes_table_name_tables")),
        sa.PrimaryKeyConstraint("table_name", name=op.f("pk_lakes")),
    )
    op.create_table(
        "lake_parts",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("origins", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_lake_parts_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lake_parts")),
    )
    op.create_index(op.f("ix_lake_parts_table_name"), "lake_parts", ["table_name"])
    op.create_table(
        "lake_files",
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("parts", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_lake_files_table_name_tables")),
        sa.PrimaryKeyConstraint("table_name", "path", name=op.f("pk_lake_files")),
    )


def _string(length: int) -> TypeEngine[str]:
    return sa.String(length=length).with_variant(sa.String(length=length, collation="C"), "postgresql")
