"""Towers as a JSON document, which is checked when it is read. Pure; no I/O."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from trainer.document_field import DocumentField
from trainer.errors import ConfigError, TornCheckpoint
from trainer.planning.towers.interactions import Interactions
from trainer.planning.towers.tower_plan import TowerFeature, TowerPlan

TOWERS_FORMAT: Final = "headrace.towers/1"
_MOST_BYTES = 64 << 20
_MOST_TABLE_BYTES = 1 << 60
_MOST_SEED = (1 << 63) - 1
_NEXT = "headrace towers make writes towers"


def towers_bytes(plan: TowerPlan) -> bytes:
    """The document of towers; equal towers give equal bytes."""
    document = {"format": TOWERS_FORMAT, "fingerprint": towers_fingerprint(plan), **_members(plan)}
    return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def towers_fingerprint(plan: TowerPlan) -> str:
    """The identity of towers: the SHA-256 of all that their document says, in hexadecimal."""
    return hashlib.sha256(json.dumps(_members(plan), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_towers(data: bytes, where: str) -> TowerPlan:
    """The towers of a document at ``where``. Raises :class:`ConfigError` for bytes that are none."""
    if len(data) > _MOST_BYTES:
        raise ConfigError("the document of towers must not be larger than towers are", where=where, value=f"{len(data)} bytes",
                          allowed=f"<= {_MOST_BYTES}", next_step=_NEXT)  # fmt: skip
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            "the document of towers must be JSON in UTF-8", where=where, value=str(error)[:120], next_step=_NEXT
        ) from error
    return _checked(DocumentField(value, where), where)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _checked(document: DocumentField, where: str) -> TowerPlan:
    try:
        form = document.at("format").text()
        if form != TOWERS_FORMAT:
            raise ConfigError("the format of towers must be one that this release reads", value=form[:80], allowed=TOWERS_FORMAT)  # fmt: skip
        plan = _plan_at(document)
        fingerprint = document.at("fingerprint").text()
        if fingerprint != towers_fingerprint(plan):
            raise ConfigError("the fingerprint of towers must be that of their document", value=fingerprint[:64],
                              allowed=towers_fingerprint(plan))  # fmt: skip
    except (TornCheckpoint, ConfigError) as error:
        place = error.where if error.where.startswith(where) else f"{where}: {error.where}".removesuffix(": ")
        raise ConfigError(error.what, where=place, value=error.value, allowed=error.allowed, next_step=_NEXT) from error
    return plan


def _plan_at(document: DocumentField) -> TowerPlan:
    features = tuple(_feature_at(item) for item in document.at("features").items())
    interactions = document.at("interactions")
    return TowerPlan(
        features=features,
        towers=tuple(tower.texts() for tower in document.at("towers").items()),
        strategy=document.at("strategy").text(),
        balance=document.at("balance").text(),
        seed=document.at("seed").count(most=_MOST_SEED),
        source=document.at("source").text(),
        interactions=None if interactions.value is None else _interactions_at(interactions, features),
        points=tuple(_point_at(item) for item in document.at("points").items()),
        plane_error=document.at("plane_error").number(),
    )


def _feature_at(field: DocumentField) -> TowerFeature:
    return TowerFeature(
        field.at("name").text(),
        field.at("table").text(),
        field.at("table_bytes").count(most=_MOST_TABLE_BYTES),
        field.at("event_bytes").number(),
    )


def _point_at(field: DocumentField) -> tuple[float, float]:
    numbers = [item.number() for item in field.items()]
    if len(numbers) != 2:
        raise TornCheckpoint("a point must be two numbers", where=field.place, value=len(numbers))
    return numbers[0], numbers[1]


def _interactions_at(field: DocumentField, features: tuple[TowerFeature, ...]) -> Interactions:
    """The matrix of its part below the diagonal."""
    below = [[item.number() for item in row.items()] for row in field.at("below_diagonal").items()]
    if [len(row) for row in below] != list(range(len(features))):
        raise TornCheckpoint("interactions must be as many numbers for each feature as there are features before it",
                             where=field.place, value=[len(row) for row in below][:20], allowed=f"0 to {len(features) - 1}")  # fmt: skip
    size = len(features)
    values = tuple(tuple(1.0 if i == j else below[max(i, j)][min(i, j)] for j in range(size)) for i in range(size))
    return Interactions(tuple(one.name for one in features), values, field.at("events").count())


def _members(plan: TowerPlan) -> dict[str, Any]:
    """The members of a document; the inverse of :func:`_plan_at`."""
    interactions = plan.interactions
    return {
        "features": [
            {"name": one.name, "table": one.table, "table_bytes": one.table_bytes, "event_bytes": one.event_bytes}
            for one in plan.features
        ],
        "towers": [list(tower) for tower in plan.towers],
        "strategy": plan.strategy,
        "balance": plan.balance,
        "seed": plan.seed,
        "source": plan.source,
        "interactions": None
        if interactions is None
        else {
            "events": interactions.events,
            "below_diagonal": [list(row[:place]) for place, row in enumerate(interactions.values)],
        },
        "points": [list(point) for point in plan.points],
        "plane_error": plan.plane_error,
    }
