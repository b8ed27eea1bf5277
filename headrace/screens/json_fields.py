"""The JSON fields of a screen that holds a dataclass of another package."""

from __future__ import annotations

import dataclasses
from typing import Any


def fields_of(value: Any, *left_out: str) -> dict[str, Any]:
    """The fields of a dataclass by name, in order, without those in ``left_out``."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.name not in left_out}
