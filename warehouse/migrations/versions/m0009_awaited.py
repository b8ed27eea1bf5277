"""Contents that wait for a memo which is computed from another one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def _hash() -> sa.types.TypeEngine[str]:
    return sa.String(length=64).with_variant(sa.String(length=64, collation="C"), "postgresql")


def upgrade() -> None:
    """Create the table. What waits elsewhere already is found when its model is submitted again, as before."""
    op.create_table(
        "awaited_contents",
        sa.Column("memo_key", _hash(), nullable=False),
        sa.Column("content", _hash(), nullable=False),
        sa.ForeignKeyConstraint(["memo_key"], ["memos.memo_key"], name=op.f("fk_awaited_contents_memo_key_memos")),
        sa.PrimaryKeyConstraint("memo_key", "content", name=op.f("pk_awaited_contents")),
    )
