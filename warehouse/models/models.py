"""Models and components in the catalog."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, insert, select, update

from transforms.analysis.expectation import Expect
from transforms.analysis.target import Target, target_of
from transforms.derived_documents import Derivation
from transforms.documents import document_part
from transforms.errors import nearest
from transforms.graphs.graph import (
    Node,
    RawColumn,
    component_from_document,
    raw_columns,
)
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.errors import UnknownModel

_STRICT = Derivation()


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A submitted version of a model; ``live``: the newest of its name. ``submitted_at``: epoch seconds."""

    id: int
    name: str
    version: int
    client: str
    priority: int
    label: str
    table: str
    table_version: int
    digest: str
    live: bool
    submitted_at: float
    policy: str
    target: Target


@dataclass(frozen=True)
class StoredInput:
    """An input of a submitted model and its component."""

    name: str
    fingerprint: str
    component: Node

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The raw columns it reads, by name."""
        return tuple(column.name for column in raw_columns(self.component))

    @property
    def is_raw(self) -> bool:
        """Whether the input is a raw column, which has no memos."""
        return isinstance(self.component, RawColumn)


def find_model(connection: Connection, name: str, version: int | None = None) -> ModelRecord | None:
    """The model's version, the newest by default, or None."""
    query = select(schema.models).where(schema.models.c.name == name)
    if version is not None:
        query = query.where(schema.models.c.version == version)
    row = connection.execute(query.order_by(schema.models.c.version.desc()).limit(1)).first()
    return None if row is None else _record(row)


def get_model(connection: Connection, name: str, version: int | None = None) -> ModelRecord:
    """The model's version, the newest by default. Raises :class:`UnknownModel` with the nearest names or all versions."""
    record = find_model(connection, name, version)
    if record is not None:
        return record
    of = schema.models.c
    if versions := connection.execute(select(of.version).where(of.name == name).order_by(of.version)).scalars().all():
        raise UnknownModel(f"model {name!r} has no such version", value=version, allowed=", ".join(map(str, versions)))
    known = set(connection.execute(select(of.name)).scalars())
    raise UnknownModel(
        "no such model", value=name, allowed=nearest(name, known), next_step="submit it: headrace model submit FILE"
    )


def all_models(connection: Connection, *, live: bool = False) -> tuple[ModelRecord, ...]:
    """Every version of every model, or the newest of each, by name and version."""
    query = select(schema.models).order_by(schema.models.c.name, schema.models.c.version)
    if live:
        query = query.where(schema.models.c.live.is_(True))
    return tuple(_record(row) for row in connection.execute(query))


def insert_model(connection: Connection, **values: object) -> ModelRecord:
    """Insert a row of ``models`` with these values by column, and return it."""
    return _record(connection.execute(insert(schema.models).values(values).returning(schema.models)).one())


def _record(row: Any) -> ModelRecord:
    return ModelRecord(row.id, row.name, row.version, row.client, row.priority, row.label, row.table_name,
                       row.table_version, row.digest, row.live, row.submitted_at, row.policy,
                       target_of(row.label, row.label_component, row.task, row.classes))  # fmt: skip


def stored_inputs(connection: Connection, model: int) -> tuple[StoredInput, ...]:
    """The inputs of a model's row, in order."""
    inputs = schema.model_inputs.c
    query = select(inputs.name, inputs.fingerprint).where(inputs.model == model).order_by(inputs.position)
    named = connection.execute(query).all()
    roots = _components(connection, {fingerprint for _, fingerprint in named})
    return tuple(StoredInput(name, fingerprint, roots[fingerprint]) for name, fingerprint in named)


def load_documents(connection: Connection, fingerprints: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The documents of these components, by fingerprint, from the catalog."""
    of = schema.components.c
    return {
        fingerprint: document
        for chunk in chunks(sorted(set(fingerprints)))
        for fingerprint, document in connection.execute(
            select(of.fingerprint, of.document).where(one_of(connection, of.fingerprint, chunk))
        )
    }


def stored_expectations(connection: Connection, model: int) -> dict[str, Expect]:
    """What the author of a model's row expects of inputs, by name. Raises :class:`~transforms.errors.DataError` for an invalid document."""
    inputs = schema.model_inputs.c
    query = (
        select(inputs.name, inputs.expect)
        .where(inputs.model == model, inputs.expect.is_not(None))
        .order_by(inputs.position)
    )
    return {
        name: _STRICT.read(Expect, document_part(document, f"expectation of input {name}"))
        for name, document in connection.execute(query)
    }


def write_expectations(connection: Connection, model: int, documents: Mapping[str, Mapping[str, Any]]) -> None:
    """Set what is expected of the inputs of a model's row; of others nothing. It is no part of a version's identity."""
    inputs = schema.model_inputs
    of = inputs.c
    before = connection.execute(select(of.name, of.expect).where(of.model == model)).all()
    for name, known in before:
        if known != documents.get(name):
            connection.execute(
                update(inputs).where(of.model == model, of.name == name).values(expect=documents.get(name))
            )


#: A cache of components by fingerprint, shared by all catalogs: a worker that matches many models reads each component once.
_KNOWN: OrderedDict[str, Node] = OrderedDict()
_MOST_KNOWN = 10_000
_KNOWN_LOCK = threading.Lock()


def _components(connection: Connection, fingerprints: Collection[str]) -> dict[str, Node]:
    """The components of these fingerprints, from the cache or the catalog."""
    with _KNOWN_LOCK:
        found = {one: _KNOWN[one] for one in fingerprints if one in _KNOWN}
    unknown = load_documents(connection, set(fingerprints) - found.keys())
    found.update((one, component_from_document(document)) for one, document in unknown.items())
    with _KNOWN_LOCK:
        for one, root in found.items():
            _KNOWN[one] = root
            _KNOWN.move_to_end(one)
        while len(_KNOWN) > _MOST_KNOWN:
            _KNOWN.popitem(last=False)
    return found
