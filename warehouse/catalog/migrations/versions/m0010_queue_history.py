"""The queue by minute."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "r0012"
down_revision = "r0011"


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "queue_minutes",
        sa.Column("minute", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("workers", sa.Integer(), nullable=False),
        sa.CheckConstraint("workers >= 0", name=op.f("ck_queue_minutes_not_negative")),
        sa.PrimaryKeyConstraint("minute", name=op.f("pk_queue_minutes")),
    )
    op.create_table(
        "queue_samples",
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("client", _string(255), nullable=False),
        sa.Column("queued", sa.BigInteger(), nullable=False),
        sa.Column("leased", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("queued >= 0 AND leased >= 0 AND failed >= 0", name=op.f("ck_queue_samples_not_negative")),
        sa.ForeignKeyConstraint(
            ["minute"], ["queue_minutes.minute"], name=op.f("fk_queue_samples_minute_queue_minutes")
        ),
        sa.ForeignKeyConstraint(["client"], ["clients.name"], name=op.f("fk_queue_samples_client_clients")),
        sa.PrimaryKeyConstraint("minute", "client", name=op.f("pk_queue_samples")),
    )


def _string(length: int) -> TypeEngine[str]:
    return sa.String(length=length).with_variant(sa.String(length=length, collation="C"), "postgresql")
