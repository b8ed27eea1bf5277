"""Towers as a JSON document, which is checked when it is read. Pure; no I/O."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

from trainer.errors import TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from trainer.planning.fingerprinted import Fingerprinted
from trainer.planning.towers.agreement import Agreement
from trainer.planning.towers.interactions import Interactions
from trainer.planning.towers.tower_plan import TowerFeature, TowerPlan
from transforms.derived_documents import Omitted, document_of, whole

TOWERS_FORMAT: Final = "headrace.towers/1"
_MOST_SEED = (1 << 63) - 1


def towers_bytes(plan: TowerPlan) -> bytes:
    """The document of towers; equal towers give equal bytes."""
    return _TOWERS.write(plan)


def towers_fingerprint(plan: TowerPlan) -> str:
    """The identity of towers: the SHA-256 of all that their document says, in hexadecimal."""
    return _TOWERS.fingerprint(plan)


def read_towers(data: bytes, where: str) -> TowerPlan:
    """The towers of a document at ``where``. Raises :class:`ConfigError` for bytes that are not such a document."""
    return _TOWERS.read(data, where)[0]


@dataclass(frozen=True, slots=True)
class _Interactions:
    """The part of a matrix below its diagonal."""

    events: int
    below_diagonal: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class _Towers:
    """The members of a document: a :class:`TowerPlan` with the interactions of all features."""

    features: tuple[TowerFeature, ...]
    towers: tuple[tuple[str, ...], ...]
    strategy: str
    balance: str
    seed: Annotated[int, whole(most=_MOST_SEED)]
    source: str
    interactions: _Interactions | None
    points: tuple[tuple[float, float], ...]
    plane_error: float
    agreement: Omitted[Agreement | None] = None
    largest: Omitted[float] = 1.0


def _plan_at(document: DocumentField) -> TowerPlan:
    stated = OPEN.read(_Towers, document)
    values = {one.name: getattr(stated, one.name) for one in fields(stated)}
    if stated.interactions is not None:
        place = document.at("interactions").place
        values["interactions"] = _whole_matrix(stated.interactions, stated.features, place)
    return TowerPlan(**values)


def _whole_matrix(stated: _Interactions, features: tuple[TowerFeature, ...], place: str) -> Interactions:
    below, size = stated.below_diagonal, len(features)
    if [len(row) for row in below] != list(range(size)):
        raise TornCheckpoint("interactions must be as many numbers for each feature as there are features before it",
                             where=place, value=[len(row) for row in below][:20], allowed=f"0 to {size - 1}")  # fmt: skip
    values = tuple(tuple(1.0 if i == j else below[max(i, j)][min(i, j)] for j in range(size)) for i in range(size))
    return Interactions(tuple(one.name for one in features), values, stated.events)


def _members(plan: TowerPlan) -> dict[str, Any]:
    """The members of a document; the inverse of :func:`_plan_at`."""
    values = {one.name: getattr(plan, one.name) for one in fields(plan)}
    if (found := plan.interactions) is not None:
        rows = tuple(row[:place] for place, row in enumerate(found.values))
        values["interactions"] = _Interactions(found.events, rows)
    members: dict[str, Any] = document_of(_Towers(**values))
    return members


_TOWERS: Final = Fingerprinted(TOWERS_FORMAT, "towers", "headrace towers make writes towers", _members, _plan_at)
