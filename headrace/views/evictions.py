"""Evictions: what they would evict, those that were done, and their undoing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.evictions import EvictionScreen, EvictionsScreen, RestorationScreen
    from warehouse.eviction.plan import EvictionRequest
    from warehouse.warehouse import Warehouse


def planned(warehouse: Warehouse, request: EvictionRequest) -> EvictionScreen:
    """What :func:`evicted` would evict; the screen has the id of the plan."""
    from headrace.screens.evictions import EvictionScreen
    from warehouse.eviction.evict import plan_eviction

    return EvictionScreen(plan_eviction(warehouse, request))


def evicted(
    warehouse: Warehouse,
    request: EvictionRequest,
    *,
    why: str,
    who: str,
    plan: str = "",
    progress: Callable[[int, int], None] = lambda done, memos: None,
) -> EvictionScreen:
    """Evict; ``plan``: the id of the plan that must still hold, else :class:`~warehouse.errors.PlanChanged` is raised and nothing changes.

    ``progress``: called with the evicted memos so far, and all.
    """
    from headrace.screens.evictions import EvictionScreen
    from warehouse.eviction.evict import run_eviction

    return EvictionScreen(run_eviction(warehouse, request, why=why, who=who, plan=plan, progress=progress))


def past(warehouse: Warehouse, *, limit: int = 50, before: int | None = None) -> EvictionsScreen:
    """The evictions that were done, newest first; ``before``: those with smaller numbers."""
    from headrace.screens.evictions import EvictionsScreen
    from warehouse.eviction.history import list_evictions

    found = list_evictions(warehouse, limit=limit + 1, before=before)
    return EvictionsScreen(found[:limit], more=len(found) > limit)


def restored(warehouse: Warehouse, eviction: int, *, dry_run: bool, who: str = "") -> RestorationScreen:
    """Undo an eviction as far as its files exist, or show what that would do. Raises :class:`~warehouse.errors.UnknownEviction`."""
    from headrace.screens.evictions import RestorationScreen
    from warehouse.eviction.restore import plan_restoration, restore_evicted

    found = plan_restoration(warehouse, eviction) if dry_run else restore_evicted(warehouse, eviction, who=who)
    return RestorationScreen(found)
