"""Data that changes: overlays, deletions and the history of a table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add what a change writes down; fragments and manifests that are there have no overlays and no deletions."""
    op.add_column("fragments", sa.Column("overlays", sa.JSON(), nullable=True))
    op.add_column("manifest_fragments", sa.Column("deletions", sa.Text(), nullable=True))
    op.add_column("manifest_fragments", sa.Column("deletions_checksum", sa.String(length=64), nullable=True))
    op.add_column("manifest_fragments", sa.Column("deleted_rows", sa.BigInteger(), nullable=True))
    op.create_table(
        "changes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("table_name", sa.String(length=255), nullable=False),
        sa.Column("table_version", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("fragments", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_changes_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_changes")),
        sa.UniqueConstraint("table_name", "table_version", name=op.f("uq_changes_table_name_table_version")),
    )
    op.create_table(
        "overlays",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("column_name", sa.String(length=255), nullable=False),
        sa.Column("change", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("fragment_id", sa.String(length=64), nullable=False),
        sa.Column("arrow_type", sa.Text(), nullable=False),
        sa.Column("checksum", sa.String(length=64), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["change"], ["changes.id"], name=op.f("fk_overlays_change_changes")),
        sa.PrimaryKeyConstraint("path", "column_name", name=op.f("pk_overlays")),
    )
    op.create_index(op.f("ix_overlays_change"), "overlays", ["change"], unique=False)
