"""What a component shares with others: its parts that they contain, and those that contain it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Select, func, literal, select, union_all

from transforms.graphs.graph import Node, Operation, topological
from transforms.render import expression_text
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.search.components import ComponentRow
from warehouse.warehouse import Warehouse

#: The parts of a component that are looked up, those nearest to its value first.
MOST_PARTS = 200
#: Components that contain a part: counted, and asked for their models, up to so many.
MOST_COUNTED = 1_000
#: Components around one that are listed.
MOST_AROUND = 20
#: Parts in one statement: SQLite allows 500 SELECTs.
_PARTS_AT_ONCE = 40


@dataclass(frozen=True, slots=True)
class SharedPart:
    """An operation of a component that other components contain, too.

    Attributes:
        fingerprint: The fingerprint of the part; it is a component of its own if a model reads it.
        expression: The part.
        components: Other components that contain it.
        is_least: Whether there are more, at which the count ended.
        models: The live models that read some of these, by name.
    """

    fingerprint: str
    expression: str
    components: int
    is_least: bool
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Around:
    """A component that contains another one."""

    fingerprint: str
    expression: str


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What a component shares.

    Attributes:
        parts: Its parts that others contain, those nearest to its value first.
        around: Components that contain it, the newest first.
        more: Whether there are more of these.
    """

    parts: tuple[SharedPart, ...]
    around: tuple[Around, ...]
    more: bool


def neighbours(warehouse: Warehouse, found: ComponentRow) -> Neighbours:
    """The neighbours of a component of the catalog."""
    parts = _parts(found.component)
    with warehouse.catalog.read() as connection:
        shared = _shared(connection, found.fingerprint, parts)
        around = _around(connection, found.fingerprint)
    return Neighbours(shared, around[:MOST_AROUND], len(around) > MOST_AROUND)


def _parts(root: Node) -> Sequence[Node]:
    """The operations below the root, the last ones to be computed first."""
    operations = [node for node in topological([root]) if isinstance(node, Operation) and node is not root]
    return operations[::-1][:MOST_PARTS]


def _shared(connection: Connection, fingerprint: str, parts: Sequence[Node]) -> tuple[SharedPart, ...]:
    counts: dict[str, int] = {}
    models: dict[str, list[str]] = {}
    inputs, named = schema.model_inputs.c, schema.models.c
    for chunk in chunks([node.identity for node in parts], _PARTS_AT_ONCE):
        others = union_all(*(_others(part, fingerprint) for part in chunk)).subquery()
        counted = select(others.c.part, func.count()).group_by(others.c.part)
        counts.update((part, count) for part, count in connection.execute(counted))
        readers = (
            select(others.c.part, named.name)
            .join(schema.model_inputs, inputs.fingerprint == others.c.fingerprint)
            .join(schema.models, named.id == inputs.model)
            .where(named.live.is_(True))
            .distinct()
            .order_by(named.name)
        )
        for part, name in connection.execute(readers):
            models.setdefault(part, []).append(name)
    return tuple(
        SharedPart(node.identity, expression_text(node), min(counts[node.identity], MOST_COUNTED), counts[node.identity] > MOST_COUNTED,
                   tuple(models.get(node.identity, ())))
        for node in parts
        if counts.get(node.identity)
    )  # fmt: skip


def _others(part: str, fingerprint: str) -> Select[tuple[str, str]]:
    """Components other than one that contain a part, up to the most that are counted and one."""
    of = schema.component_subgraphs.c
    found = select(of.fingerprint).where(of.subgraph == part, of.fingerprint != fingerprint).limit(MOST_COUNTED + 1)
    inner = found.subquery()
    return select(literal(part).label("part"), inner.c.fingerprint)


def _around(connection: Connection, fingerprint: str) -> tuple[Around, ...]:
    of, components = schema.component_subgraphs.c, schema.components.c
    within = select(of.fingerprint).where(of.subgraph == fingerprint, of.fingerprint != fingerprint)
    keys = list(connection.execute(within.limit(MOST_COUNTED)).scalars())
    query = select(components.fingerprint, components.expression).where(
        one_of(connection, components.fingerprint, keys)
    )
    newest = query.order_by(components.created_at.desc(), components.fingerprint).limit(MOST_AROUND + 1)
    return tuple(Around(*row) for row in connection.execute(newest)) if keys else ()
