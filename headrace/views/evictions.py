"""Evictions, and what they would evict."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.evictions import EvictionScreen
    from warehouse.eviction.plan import EvictionRequest
    from warehouse.warehouse import Warehouse


def planned(warehouse: Warehouse, request: EvictionRequest) -> EvictionScreen:
    """What :func:`evicted` would evict; the screen has the id of the plan."""
    from headrace.screens.evictions import EvictionScreen
    from warehouse.eviction.evict import plan_eviction

    return EvictionScreen(plan_eviction(warehouse, request))


def evicted(warehouse: Warehouse, request: EvictionRequest, *, why: str, who: str, plan: str = "") -> EvictionScreen:
    """Evict; ``plan``: the id of the plan that must still hold, else :class:`~warehouse.errors.PlanChanged` is raised and nothing changes."""
    from headrace.screens.evictions import EvictionScreen
    from warehouse.eviction.evict import run_eviction

    return EvictionScreen(run_eviction(warehouse, request, why=why, who=who, plan=plan))
