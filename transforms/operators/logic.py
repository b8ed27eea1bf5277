"""Boolean logic of three values, as in SQL: null is unknown."""

from __future__ import annotations

from transforms.operators.declaration import Operator

OPERATORS: tuple[Operator, ...] = ()
