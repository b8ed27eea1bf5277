"""A plugin of pytest: tests that are marked medium or slow run after all others, so that most mutants are killed in little time."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by marks; tests of one mark keep their order."""
    items.sort(key=_weight)


def _weight(item: pytest.Item) -> int:
    return 2 if item.get_closest_marker("slow") else 1 if item.get_closest_marker("medium") else 0
