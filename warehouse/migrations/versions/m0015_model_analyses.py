"""Which analyses each version of a model was resolved with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def _string(length: int) -> sa.String:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    """Create the table of models' analyses; a model of before gets its rows when it is submitted again."""
    op.create_table(
        "model_analyses",
        sa.Column("model_name", _string(255), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("analysis", _string(64), nullable=False),
        sa.Column("key", _string(64), nullable=False),
        sa.Column("artifact", _string(64), nullable=False),
        sa.Column("operator", _string(255), nullable=False),
        sa.Column("expression", sa.Text(), nullable=False),
        sa.Column("start_at", sa.Float(), nullable=False),
        sa.Column("end_at", sa.Float(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("model_name", "version", "analysis", name=op.f("pk_model_analyses")),
    )
    op.create_index(op.f("ix_model_analyses_artifact"), "model_analyses", ["artifact"], unique=False)
