"""What operators and components cost when they were computed, and what was read for training."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def _string(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length=length).with_variant(sa.String(length=length, collation="C"), "postgresql")


def upgrade() -> None:
    """Create the tables of measured costs and of reads."""
    op.create_table(
        "operator_costs",
        sa.Column("operator", _string(255), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("rows", sa.Float(), nullable=False),
        sa.Column("secs", sa.Float(), nullable=False),
        sa.Column("stored_rows", sa.Float(), nullable=False),
        sa.Column("stored_bytes", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("operator", "version", name=op.f("pk_operator_costs")),
    )
    op.create_table(
        "component_costs",
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.Column("rows", sa.Float(), nullable=False),
        sa.Column("secs", sa.Float(), nullable=False),
        sa.Column("stored_bytes", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("pk_component_costs")),
    )
    op.create_table(
        "reads",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("model", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("start_at", sa.Float(), nullable=True),
        sa.Column("end_at", sa.Float(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("read_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["model"], ["models.id"], name=op.f("fk_reads_model_models")),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_reads_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reads")),
    )
    op.create_index(op.f("ix_reads_model_read_at"), "reads", ["model", "read_at"], unique=False)
