"""Memo keys that begin as their component's fingerprint does: the memos of a component lie side by side in every index."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"

_REFERRING = ("tasks", "waits")
_NEW = "substr({of}, 1, 16) || substr(memo_key, 1, 48)"


def upgrade() -> None:
    """Give every memo its new key: 16 digits of the fingerprint, and 48 of the key that it had."""
    on_postgresql = op.get_bind().dialect.name == "postgresql"
    if on_postgresql:
        for table in _REFERRING:
            op.drop_constraint(op.f(f"fk_{table}_memo_key_memos"), table, type_="foreignkey")
    else:
        op.execute("PRAGMA defer_foreign_keys = ON")
    for table in _REFERRING:
        fingerprint = f"(SELECT memos.fingerprint FROM memos WHERE memos.memo_key = {table}.memo_key)"
        op.execute(f"UPDATE {table} SET memo_key = {_NEW.format(of=fingerprint)}")
    op.execute(f"UPDATE memos SET memo_key = {_NEW.format(of='fingerprint')}")
    if on_postgresql:
        for table in _REFERRING:
            op.create_foreign_key(op.f(f"fk_{table}_memo_key_memos"), table, "memos", ["memo_key"], ["memo_key"])
