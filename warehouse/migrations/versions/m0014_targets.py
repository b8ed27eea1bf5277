"""What a model's label is, besides a raw column of 0 and 1: an expression, and the kind of task."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Models that are there keep their raw columns and the default task."""
    string = sa.String(16).with_variant(sa.String(16, collation="C"), "postgresql")
    op.add_column("models", sa.Column("label_component", sa.JSON(none_as_null=True)))
    op.add_column("models", sa.Column("task", string))
    op.add_column("models", sa.Column("classes", sa.Integer(), nullable=False, server_default="0"))
