"""What options that are objects of their own have in common: known members, and one form of refusal."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from trainer.errors import ConfigError
from transforms.errors import nearest


def check_known(document: Mapping[Any, Any], known: Collection[str], *, where: str, of: str) -> None:
    """Raise :class:`ConfigError` for a member that is not among the ``known`` ones; ``of``: what has the options."""
    for name in document:
        if name not in known:
            raise ConfigError(f"an option of {of} must be a known one", where=where, value=name,
                              allowed=nearest(str(name), known), next_step="correct this training option")  # fmt: skip


def refuse_option(where: str, value: Any, allowed: str, page: str) -> NoReturn:
    """Raise :class:`ConfigError` for an option with another value than is ``allowed``; ``page``: of the manual."""
    raise ConfigError(f"{where} must be {allowed}", where=where, value=value, allowed=allowed,
                      next_step=f"correct this training option: {page}")  # fmt: skip
