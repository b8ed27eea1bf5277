"""The accounts of the adaptive policy in the catalog, one for each table."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, delete, insert, select

from warehouse.catalog import schema
from warehouse.planning.regret import Account


def load_account(connection: Connection, table: str) -> tuple[Account, float | None]:
    """The account of a table, and when it was settled; None before the first time."""
    of = schema.policy_accounts.c
    row = connection.execute(select(schema.policy_accounts).where(of.table_name == table)).first()
    if row is None:
        return Account(), None
    hedged = None if row.hedged_all_secs is None else (row.hedged_all_secs, row.hedged_none_secs)
    return Account(row.own_secs, row.all_secs, row.none_secs, row.scale_secs, hedged), row.settled_at


def save_account(connection: Connection, table: str, account: Account, now: float) -> None:
    """Store the account of a table, settled ``now``."""
    of = schema.policy_accounts.c
    kept, computed = account.hedged_secs or (None, None)
    connection.execute(delete(schema.policy_accounts).where(of.table_name == table))
    connection.execute(insert(schema.policy_accounts).values(
        table_name=table, settled_at=now, own_secs=account.own_secs, all_secs=account.all_secs,
        none_secs=account.none_secs, scale_secs=account.scale_secs, hedged_all_secs=kept, hedged_none_secs=computed))  # fmt: skip


def settled_before(connection: Connection, tables: Collection[str], moment: float) -> list[str]:
    """Those of the tables whose account was not settled since ``moment``."""
    of = schema.policy_accounts.c
    recent = select(of.table_name).where(of.table_name.in_(sorted(tables)), of.settled_at > moment)
    return sorted(set(tables) - set(connection.execute(recent).scalars()))
