"""Operators that must see all events of some partitions before they can work on one."""

from __future__ import annotations

from transforms.operators.declaration import Operator

OPERATORS: tuple[Operator, ...] = ()
