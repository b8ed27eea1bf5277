"""Clients and their shares of the workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.clients import ClientScreen, ClientsScreen
    from warehouse.warehouse import Warehouse


def listed(warehouse: Warehouse) -> ClientsScreen:
    """The clients with their weights, current shares, queues and deadlines."""
    from headrace.screens.clients import ClientsScreen
    from warehouse.queue.clients import list_clients

    return ClientsScreen(list_clients(warehouse), warehouse.config.client_floor_share)


def changed(
    warehouse: Warehouse, name: str, *, weight: float | None, deadline_secs: float | None, default_deadline: bool
) -> ClientScreen:
    """Set a client's weight or deadline, and show it. Raises :class:`~transforms.errors.InputError`."""
    from headrace.screens.clients import ClientScreen
    from warehouse.queue.clients import set_client

    client = set_client(warehouse, name, weight=weight, deadline_secs=deadline_secs, default_deadline=default_deadline)
    return ClientScreen(client, warehouse.config.client_floor_share)
