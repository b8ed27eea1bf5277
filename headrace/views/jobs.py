"""The training jobs of a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.jobs import JobsScreen

#: The folder of the fleet in a home.
FLEET = "fleet"


def listed(folder: Path) -> JobsScreen:
    """The jobs of the fleet in a folder; none without one."""
    from headrace.screens.jobs import JobsScreen
    from trainer.job.launch.fleet_store import FleetStore

    store = FleetStore(folder)
    return JobsScreen(str(store.folder), store.jobs())
