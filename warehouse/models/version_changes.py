"""What differs between two versions of a model. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select

from transforms.analysis.target import Target
from transforms.comparison.difference import difference
from transforms.errors import InputError
from warehouse.catalog import schema
from warehouse.models.models import ModelRecord, StoredInput, get_model, stored_inputs
from warehouse.warehouse import Warehouse

InputState = Literal["same", "changed", "new", "gone"]


@dataclass(frozen=True, slots=True)
class ChangedInput:
    """An input in two versions.

    Attributes:
        name: Its name.
        state: Whether it is the same, changed, new or gone.
        before: The component of the earlier version; empty if it is new.
        after: That of the later version; empty if it is gone.
        changes: The differences, as sentences; those of a changed one alone.
    """

    name: str
    state: InputState
    before: str
    after: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """What differs between two versions of a model.

    Attributes:
        model: Its name.
        before: The earlier version.
        after: The later version.
        settings: Differences of what is no input, as sentences.
        inputs: The inputs of the later version in order, then those that are gone.
        versions: The numbers of all versions, ascending.
    """

    model: str
    before: int
    after: int
    settings: tuple[str, ...]
    inputs: tuple[ChangedInput, ...]
    versions: tuple[int, ...]


def version_changes(
    warehouse: Warehouse, name: str, before: int | None = None, after: int | None = None
) -> VersionChanges:
    """The differences from one version to another: by default from the one before the newest to the newest.

    Raises :class:`~warehouse.errors.UnknownModel`, and :class:`InputError` for a first version without ``before``.
    """
    of = schema.models.c
    with warehouse.catalog.read() as connection:
        later = get_model(connection, name, after)
        numbers = select(of.version).where(of.name == name).order_by(of.version)
        versions = tuple(connection.execute(numbers).scalars())
        earlier = max((one for one in versions if one < later.version), default=None) if before is None else before
        if earlier is None:
            raise InputError("a version must have one before it to be compared", where=f"model {name}", value=later.version,
                             next_step="submit a changed model, or name both versions")  # fmt: skip
        first = get_model(connection, name, earlier)
        old, new = (stored_inputs(connection, one.id) for one in (first, later))
    return VersionChanges(
        name, first.version, later.version, tuple(_settings(first, later)), _inputs(old, new), versions
    )


def _settings(before: ModelRecord, after: ModelRecord) -> list[str]:
    pairs = (
        ("client", before.client, after.client),
        ("priority", before.priority, after.priority),
        ("admission policy", before.policy, after.policy),
        ("table", before.table, after.table),
        ("label", before.label, after.label),
        ("task", task_text(before.target), task_text(after.target)),
    )
    return [f"{what}: {old} -> {new}" for what, old, new in pairs if old != new]


def task_text(target: Target) -> str:
    """A task with its classes, if it has several."""
    return f"{target.kind}, {target.classes} classes" if target.classes else target.kind


def _inputs(before: Sequence[StoredInput], after: Sequence[StoredInput]) -> tuple[ChangedInput, ...]:
    earlier: Mapping[str, StoredInput] = {one.name: one for one in before}
    names = {one.name for one in after}
    found = [_input(earlier.get(one.name), one) for one in after]
    return (*found, *(ChangedInput(one.name, "gone", one.fingerprint, "") for one in before if one.name not in names))


def _input(before: StoredInput | None, after: StoredInput) -> ChangedInput:
    if before is None:
        return ChangedInput(after.name, "new", "", after.fingerprint)
    if before.fingerprint == after.fingerprint:
        return ChangedInput(after.name, "same", before.fingerprint, after.fingerprint)
    sentences = difference(before.component, after.component).sentences
    return ChangedInput(after.name, "changed", before.fingerprint, after.fingerprint, sentences)
