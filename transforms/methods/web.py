"""What an expression over addresses and structured text offers."""

from __future__ import annotations

from transforms.methods.base import Methods


class WebMethods(Methods):
    """URLs, IP addresses, device strings and JSON."""

    __slots__ = ()
