"""Operators over a user's history: lists in the order of time."""

from __future__ import annotations

from transforms.operators.declaration import Operator

OPERATORS: tuple[Operator, ...] = ()
