"""The number of random examples of a property test: all of them in ``make test-all``, fewer in ``make test``."""

from __future__ import annotations

from hypothesis import settings

#: ``max_examples`` of the profile ``thorough`` in tests/conftest.py.
THOROUGH = 100


def scaled(examples: int) -> int:
    """The share of ``examples`` that the current profile of Hypothesis runs, at least 1."""
    return max(1, examples * settings().max_examples // THOROUGH)
