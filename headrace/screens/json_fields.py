"""The JSON object of a screen that holds a value of another package, and of the value itself."""

from __future__ import annotations

import dataclasses
from typing import Any


def fields_of(value: Any, *left_out: str) -> dict[str, Any]:
    """The fields of a dataclass by name, in their order, without those in ``left_out``; their values as they are."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.name not in left_out}
