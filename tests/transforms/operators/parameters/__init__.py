"""Parameters to try operators with, one file a family as the operators have.

``PARAMS`` are strategies for the laws, ``GOLDEN_PARAMS`` the fixed ones of the golden outputs, recorded for all time and
so only ever added to. An operator without an entry is tried without parameters.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

_FAMILIES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {}
GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {}
for _family in _FAMILIES:
    PARAMS |= _family.PARAMS
    GOLDEN_PARAMS |= _family.GOLDEN_PARAMS
#: Texts of the golden outputs, for operators that make nothing of ordinary ones.
GOLDEN_TEXTS: dict[str, list[str | None]] = {
    name: texts for family in _FAMILIES for name, texts in getattr(family, "GOLDEN_TEXTS", {}).items()
}
#: Operators that refuse lists of different lengths in one row.
ALIGNED = frozenset(name for family in _FAMILIES for name in getattr(family, "ALIGNED", ()))


def params_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Parameters that an operator takes."""
    return PARAMS.get(name, st.just({}))


def aligned(name: str, event: Sequence[Any]) -> tuple[Any, ...]:
    """One event's arguments, lists cut to the length of the shortest if the operator asks for equal lengths."""
    if name not in ALIGNED:
        return tuple(event)
    shortest = min((len(value) for value in event if isinstance(value, list)), default=0)
    return tuple(value[:shortest] if isinstance(value, list) else value for value in event)
