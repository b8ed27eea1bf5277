"""What the authors of models expect of inputs, and sketches of the values of components over fragments."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "r0008"
down_revision = "r0007"


def upgrade() -> None:
    """Add the column and the table."""
    op.add_column("model_inputs", sa.Column("expect", sa.JSON(), nullable=True))
    op.create_table(
        "value_sketches",
        sa.Column("key", _string(64), nullable=False),
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("recorded_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_value_sketches")),
    )
    op.create_index("ix_value_sketches_recorded_at", "value_sketches", ["recorded_at"])


def _string(length: int) -> TypeEngine[str]:
    return sa.String(length=length).with_variant(sa.String(length=length, collation="C"), "postgresql")
