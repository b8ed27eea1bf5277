"""Operators over weighted lists: any number of ids, each with a float32 weight."""

from __future__ import annotations

from transforms.operators.declaration import Operator

OPERATORS: tuple[Operator, ...] = ()
