"""The check of the state of a dense part that is read from a checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from trainer.errors import TornCheckpoint
from transforms.arrays import Array
from transforms.errors import listed

#: The shape and the type of an array.
Kind: TypeAlias = tuple[tuple[int, ...], str]


def kind_of(array: Array) -> Kind:
    """The kind of an array."""
    return tuple(array.shape), str(array.dtype)


def check_state(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> None:
    """See :func:`check_kinds`, for the state of now."""
    check_kinds({name: kind_of(one) for name, one in ours.items()}, theirs)


def check_kinds(ours: Mapping[str, Kind], theirs: Mapping[str, Array]) -> None:
    """Raise :class:`TornCheckpoint` if the arrays of a checkpoint have other names, types or shapes than the model's."""
    found = {name: kind_of(array) for name, array in theirs.items()}
    differing = [name for name in {**ours, **found} if ours.get(name) != found.get(name)]
    if differing:
        raise TornCheckpoint(
            "the dense weights of a checkpoint must have the shapes of the model's, got others",
            value=listed([f"{name}: {_text(found.get(name))}" for name in differing]),
            allowed=listed([f"{name}: {_text(ours.get(name))}" for name in differing]),
            next_step="continue with the options and the release of the run, or train in another run directory",
        )


def _text(kind: Kind | None) -> str:
    return "none" if kind is None else f"{kind[1]} {list(kind[0])}"
