"""Evictions that can be undone, and files that gc may be deleting."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "r0010"
down_revision = "r0009"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the columns, the tables and the index."""
    op.add_column("memo_files", sa.Column("collected_at", sa.Float(), nullable=True))
    op.create_table(
        "evictions",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("evicted_at", sa.Float(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("plan", _string(64), nullable=False),
        sa.Column("memos", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("restored_at", sa.Float(), nullable=True),
        sa.Column("restored_by", sa.Text(), nullable=True),
        sa.CheckConstraint("(restored_at IS NULL) = (restored_by IS NULL)", name=op.f("ck_evictions_restored")),
        sa.CheckConstraint("memos >= 0 AND size_bytes >= 0", name=op.f("ck_evictions_not_negative")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evictions")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "evicted_coverage",
        sa.Column("eviction", _ROW_ID, nullable=False),
        sa.Column("file", _ROW_ID, nullable=False),
        sa.Column("content", _string(64), nullable=False),
        sa.Column("column_set", _ROW_ID, nullable=False),
        sa.ForeignKeyConstraint(["eviction"], ["evictions.id"], name=op.f("fk_evicted_coverage_eviction_evictions")),
        sa.ForeignKeyConstraint(["file"], ["memo_files.id"], name=op.f("fk_evicted_coverage_file_memo_files")),
        sa.ForeignKeyConstraint(
            ["column_set"], ["column_sets.id"], name=op.f("fk_evicted_coverage_column_set_column_sets")
        ),
        sa.PrimaryKeyConstraint("eviction", "file", "content", "column_set", name=op.f("pk_evicted_coverage")),
    )
    op.create_index(op.f("ix_evicted_coverage_file"), "evicted_coverage", ["file"])
    op.add_column("memos", sa.Column("eviction", sa.BigInteger(), nullable=True))
    op.add_column("memos", sa.Column("evicted_file", sa.BigInteger(), nullable=True))
    op.add_column("memos", sa.Column("evicted_ready_at", sa.Float(), nullable=True))
    undoable = sa.text("eviction IS NOT NULL")
    op.create_index("ix_memos_eviction", "memos", ["eviction"], sqlite_where=undoable, postgresql_where=undoable)


def _string(length: int) -> TypeEngine[str]:
    return sa.String(length=length).with_variant(sa.String(length=length, collation="C"), "postgresql")
