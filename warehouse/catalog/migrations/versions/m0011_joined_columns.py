"""Columns that are joined from other tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "r0013"
down_revision = "r0012"


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "joined_columns",
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("column_name", _string(255), nullable=False),
        sa.Column("other_table", _string(255), nullable=False),
        sa.Column("arrow_type", sa.Text(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("failed_version", sa.Integer(), nullable=True),
        sa.Column("failed_other_version", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(failed_version IS NULL) = (error IS NULL) AND (failed_other_version IS NULL) = (error IS NULL)",
            name=op.f("ck_joined_columns_failed"),
        ),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_joined_columns_table_name_tables")),
        sa.ForeignKeyConstraint(["other_table"], ["tables.name"], name=op.f("fk_joined_columns_other_table_tables")),
        sa.PrimaryKeyConstraint("table_name", "column_name", name=op.f("pk_joined_columns")),
    )
    op.create_table(
        "joined_views",
        sa.Column("view", _string(64), nullable=False),
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("column_name", _string(255), nullable=False),
        sa.Column("checksum", _string(64), nullable=False),
        sa.Column("other_version", sa.Integer(), nullable=False),
        sa.Column("computed_at", sa.Float(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("changed_events", sa.BigInteger(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.CheckConstraint("other_version >= 0 AND events >= 0", name=op.f("ck_joined_views_not_negative")),
        sa.ForeignKeyConstraint(
            ["table_name", "column_name"],
            ["joined_columns.table_name", "joined_columns.column_name"],
            name=op.f("fk_joined_views_table_name_column_name_joined_columns"),
        ),
        sa.PrimaryKeyConstraint("view", name=op.f("pk_joined_views")),
    )
    op.create_index("ix_joined_views_table_name_column_name", "joined_views", ["table_name", "column_name"])
    op.create_table(
        "join_leases",
        sa.Column("other_table", _string(255), nullable=False),
        sa.Column("fragment", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("lease", _string(32), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["other_table"], ["tables.name"], name=op.f("fk_join_leases_other_table_tables")),
        sa.PrimaryKeyConstraint("other_table", "fragment", name=op.f("pk_join_leases")),
    )
    op.create_index("ix_join_leases_lease", "join_leases", ["lease"])
    op.create_table(
        "time_ranges",
        sa.Column("digest", _string(64), nullable=False),
        sa.Column("first_micros", sa.BigInteger(), nullable=True),
        sa.Column("last_micros", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("(first_micros IS NULL) = (last_micros IS NULL)", name=op.f("ck_time_ranges_both")),
        sa.CheckConstraint("first_micros <= last_micros", name=op.f("ck_time_ranges_order")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_time_ranges")),
    )


def _string(length: int) -> TypeEngine[str]:
    return sa.String(length=length).with_variant(sa.String(length=length, collation="C"), "postgresql")
