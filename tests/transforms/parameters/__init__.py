"""Parameters to try operators with, one file a family as the operators have.

``PARAMS`` are strategies for the laws, ``GOLDEN_PARAMS`` the fixed ones of the golden outputs, recorded for all time and
so only ever added to. An operator without an entry is tried without parameters.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from hypothesis import strategies as st

_FAMILIES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {}
GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {}
for _family in _FAMILIES:
    PARAMS |= _family.PARAMS
    GOLDEN_PARAMS |= _family.GOLDEN_PARAMS


def params_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Parameters that an operator takes."""
    return PARAMS.get(name, st.just({}))
