"""Retire a model: nothing is computed for it any more, and what it read stays for the others."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select, update

from warehouse import schema
from warehouse.models import get_model
from warehouse.warehouse import Warehouse


def retire_model(warehouse: Warehouse, name: str) -> bool:
    """No version of the model is live from now on, and it waits for nothing; False if that was so already.

    Its memos stay until something evicts them; tasks that only it waited for are not leased. To submit it again makes it
    live again. Raises :class:`~warehouse.errors.UnknownModel`.
    """
    of = schema.models.c

    def retire(connection: Connection) -> bool:
        get_model(connection, name)
        live = connection.execute(select(of.id).where(of.name == name, of.live.is_(True))).scalars().all()
        connection.execute(update(schema.models).where(of.id.in_(live)).values(live=False))
        connection.execute(delete(schema.waits).where(schema.waits.c.model.in_(live)))
        return bool(live)

    return warehouse.catalog.run(retire, idempotent=True)
