"""Indexes that the queue's figures are read along, however long it is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_UNREADY = sa.text("state <> 'READY'")
_OPEN = sa.text("state IN ('QUEUED', 'LEASED')")


def upgrade() -> None:
    """Memos that are not ready also by fragment, and by key with what is summed over them; tasks that are not finished by key."""
    op.drop_index("ix_memos_unready", "memos")
    for name, table, columns, where in (
        ("ix_memos_unready", "memos", ["state", "fragment"], _UNREADY),
        ("ix_memos_unready_memo_key", "memos", ["memo_key", "fingerprint", "fragment"], _UNREADY),
        ("ix_tasks_open", "tasks", ["memo_key", "created_at"], _OPEN),
    ):
        op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
