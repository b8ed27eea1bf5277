"""Operators over addresses and structured text: URLs, IP addresses, device strings, JSON."""

from __future__ import annotations

from transforms.operators.declaration import Operator

OPERATORS: tuple[Operator, ...] = ()
