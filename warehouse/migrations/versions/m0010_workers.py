"""Shares of clients, lost workers apart from failed attempts, and what failures were."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Everybody weighs the same and begins now; losses so far counted as attempts, and stay so."""
    op.add_column("clients", sa.Column("weight", sa.Float(), nullable=False, server_default="1"))
    op.add_column("clients", sa.Column("virtual_secs", sa.Float()))
    op.add_column("clients", sa.Column("deadline_secs", sa.Float()))
    op.add_column("tasks", sa.Column("losses", sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "failures",
        sa.Column("task", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("worker", sa.Text()),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("failed_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name=op.f("fk_failures_task_tasks")),
        sa.PrimaryKeyConstraint("task", name=op.f("pk_failures")),
    )
