"""Events of lineage that wait until they are sent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "r0009"
down_revision = "r0008"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "lineage_events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("key", _string(64), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.Float(), nullable=False),
        sa.Column("taken_at", sa.Float(), nullable=True),
        sa.Column("sent_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lineage_events")),
        sa.UniqueConstraint("key", name=op.f("uq_lineage_events_key")),
    )
    op.create_index("ix_lineage_events_sent_at", "lineage_events", ["sent_at"])


def _string(length: int) -> TypeEngine[str]:
    return sa.String(length=length).with_variant(sa.String(length=length, collation="C"), "postgresql")
