"""The names of the admission policies, as the catalog and commands spell them."""

from __future__ import annotations

from enum import StrEnum


class PolicyName(StrEnum):
    """An admission policy (:mod:`warehouse.planning.policy`) by name."""

    ALL = "all"
    ADAPTIVE = "adaptive"
    NONE = "none"
