"""Statistics of features by component, and the samples that are in them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "r0004"
down_revision = "r0003"


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "feature_statistics",
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("recorded_at", sa.Float(), nullable=False),
        sa.CheckConstraint("version > 0", name=op.f("ck_feature_statistics_version")),
        sa.PrimaryKeyConstraint("fingerprint", "version", name=op.f("pk_feature_statistics")),
    )
    op.create_table(
        "feature_samples",
        sa.Column("run", _string(64), nullable=False),
        sa.Column("host", _string(255), nullable=False),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("recorded_at", sa.Float(), nullable=False),
        sa.CheckConstraint("epoch >= 0", name=op.f("ck_feature_samples_not_negative")),
        sa.PrimaryKeyConstraint("run", "host", "epoch", name=op.f("pk_feature_samples")),
    )


def _string(length: int) -> TypeEngine[str]:
    return sa.String(length=length).with_variant(sa.String(length=length, collation="C"), "postgresql")
