"""Which operations of a merged graph a model's policy keeps."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from transforms.errors import InputError
from warehouse.enqueue import Keeps
from warehouse.merged import MergedGraph


def keep_requested(graph: MergedGraph) -> Keeps:
    """Every component that a model asks for and that is not ready: what the paper does."""
    components = tuple(graph.components)
    return lambda ready: tuple(fingerprint for fingerprint in components if fingerprint not in ready)


def keep_nothing(_graph: MergedGraph) -> Keeps:
    """No component: everything that is not ready is computed when it is read."""
    return lambda _ready: ()


_KEEPS: dict[str, Callable[[MergedGraph], Keeps]] = {"all": keep_requested, "none": keep_nothing}


def keeps_of(connection: Connection, policy: str) -> Callable[[MergedGraph], Keeps]:
    """What a policy keeps. Raises :class:`InputError` for a name that is none."""
    if policy not in _KEEPS:
        raise InputError("no such policy", value=policy, allowed=", ".join(sorted(_KEEPS)))
    return _KEEPS[policy]
