"""The settings of a warehouse, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.settings import SettingsScreen
    from warehouse.settings import Settings


def shown(settings: Settings) -> SettingsScreen:
    """All settings; a URL without its password."""
    from headrace.screens.settings import SettingRow, SettingsScreen
    from warehouse.catalog.urls import outline
    from warehouse.settings import FILE, variable_of

    rows = (
        SettingRow(
            one.name,
            outline(str(one.value)) if one.name == "catalog_url" and one.value else one.value,
            one.source,
            variable_of(one.name),
        )
        for one in settings.each
    )
    return SettingsScreen(settings.config.home, f"{settings.config.home.rstrip('/')}/{FILE}", tuple(rows))
