"""Functions a user wrote, as operators."""

from __future__ import annotations

from transforms.operators.declaration import Operator

OPERATORS: tuple[Operator, ...] = ()
