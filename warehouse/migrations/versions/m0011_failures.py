"""What failures are listed and found by, beside the whole of each; and one for every task that failed before there were any."""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_FAILURES = sa.table(
    "failures", *map(sa.column, ("task", "worker", "attempt", "failed_at")), sa.column("document", sa.JSON())
)
_TASKS = sa.table("tasks", *map(sa.column, ("id", "worker", "attempts", "changed_at", "state", "error")))


def upgrade() -> None:
    """The table is made anew, so that what is listed stands before the document."""
    rows = _rows(op.get_bind())
    op.drop_table("failures")
    made = op.create_table(
        "failures",
        sa.Column("task", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("worker", sa.Text()),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("failed_at", sa.Float(), nullable=False),
        sa.Column("kind", _string(16), nullable=False),
        sa.Column("operator", _string(255), nullable=False),
        sa.Column("exception", _string(255), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name=op.f("fk_failures_task_tasks")),
        sa.PrimaryKeyConstraint("task", name=op.f("pk_failures")),
    )
    op.bulk_insert(made, rows)


def _string(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def _rows(connection: sa.Connection) -> list[dict[str, Any]]:
    rows = [_row(*row) for row in connection.execute(sa.select(_FAILURES))]
    known = {row["task"] for row in rows}
    of = _TASKS.c
    failed = sa.select(of.id, of.worker, of.attempts, of.changed_at, of.error).where(of.state == "FAILED")
    for task, worker, attempts, changed_at, error in connection.execute(failed):
        if task not in known:
            document: dict[str, Any] = {"kind": "raised", "error": error or "not known", "operator": "", "expression": "",
                        "events": [], "sample": ""}  # fmt: skip
            rows.append(_row(task, worker, attempts, changed_at, document))
    return rows


def _row(task: int, worker: str | None, attempt: int, failed_at: float, document: dict[str, Any]) -> dict[str, Any]:
    error = _plain(document["error"])
    exception = re.match(r"(\w+):", error)
    return {"task": task, "worker": worker, "attempt": attempt, "failed_at": failed_at, "kind": document["kind"],
            "operator": _plain(document["operator"])[:255], "exception": exception[1][:255] if exception else "",
            "error": error, "document": document}  # fmt: skip


def _plain(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")
