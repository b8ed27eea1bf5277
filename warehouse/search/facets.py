"""How the components that fulfil a query are spread over operators, tables, clients and states: what a search can be narrowed by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, case, func, select, union

from warehouse.catalog import schema
from warehouse.catalog.catalog import one_of
from warehouse.scheduling.task_states import MemoState
from warehouse.search.measures import is_input
from warehouse.search.names import check_names
from warehouse.search.query import ComponentQuery
from warehouse.search.search import newest_matching
from warehouse.search.sql import has_memo, reader_conditions
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value that a search can be narrowed to, and the number of components that it leaves."""

    name: str
    components: int


@dataclass(frozen=True, slots=True)
class Facets:
    """The values of each facet, those of most components first.

    Attributes:
        components: The number of components that are counted.
        is_least: Whether further components fulfil the query: the newest ones are counted, so every number is a least one, and values of the
            others alone are missing.
        operators: The operators that they apply.
        tables: The tables over which models read them.
        clients: The clients whose models read them.
        states: The states that their memos have.
    """

    components: int
    is_least: bool
    operators: tuple[FacetValue, ...]
    tables: tuple[FacetValue, ...]
    clients: tuple[FacetValue, ...]
    states: tuple[FacetValue, ...]


def facets(warehouse: Warehouse, query: ComponentQuery, *, most_counted: int = 1_000, most_values: int = 20) -> Facets:
    """The facets of the components that fulfil a query, of at most ``most_counted`` of them and ``most_values`` values each.

    A value's number is that of a search with it as a further condition, if all are counted. Three statements more than listing the components. Raises
    what :func:`~warehouse.search.search.search_components` raises for unknown names.
    """
    with warehouse.catalog.read() as connection:
        check_names(connection, query)
        found = newest_matching(connection, query, most_counted + 1)
        keys = found[:most_counted]
        tables, clients = _readers(connection, query, keys)
        return Facets(
            components=len(keys),
            is_least=len(found) > most_counted,
            operators=_first(_operators(connection, keys), most_values),
            tables=_first(tables, most_values),
            clients=_first(clients, most_values),
            states=_first(_states(connection, keys), most_values),
        )


def _first(values: Iterable[FacetValue], most: int) -> tuple[FacetValue, ...]:
    return tuple(sorted(values, key=lambda one: (-one.components, one.name))[:most])


def _operators(connection: Connection, keys: Sequence[str]) -> list[FacetValue]:
    of = schema.component_operators.c
    counted = select(of.operator, func.count()).where(one_of(connection, of.fingerprint, keys)).group_by(of.operator)
    return [FacetValue(name, components) for name, components in connection.execute(counted)]


def _readers(
    connection: Connection, query: ComponentQuery, keys: Sequence[str]
) -> tuple[list[FacetValue], list[FacetValue]]:
    """Tables and clients of the models that read components, as an input, else inside one, and of which the query asks."""
    models, inputs, parts = schema.models.c, schema.model_inputs.c, schema.component_subgraphs.c
    direct = select(inputs.fingerprint, models.client, models.table_name).join(schema.models, models.id == inputs.model)
    inside = (
        select(parts.subgraph, models.client, models.table_name)
        .join(schema.model_inputs, inputs.fingerprint == parts.fingerprint)
        .join(schema.models, models.id == inputs.model)
        .where(~is_input(parts.subgraph))
    )
    asked = reader_conditions(query)
    each = union(
        direct.where(one_of(connection, inputs.fingerprint, keys), *asked),
        inside.where(one_of(connection, parts.subgraph, keys), *asked),
    )
    tables: defaultdict[str, set[str]] = defaultdict(set)
    clients: defaultdict[str, set[str]] = defaultdict(set)
    for fingerprint, client, table in connection.execute(each):
        clients[client].add(fingerprint)
        tables[table].add(fingerprint)
    return _sizes(tables), _sizes(clients)


def _sizes(named: dict[str, set[str]]) -> list[FacetValue]:
    return [FacetValue(name, len(components)) for name, components in named.items()]


def _states(connection: Connection, keys: Sequence[str]) -> list[FacetValue]:
    having = [func.coalesce(func.sum(case((has_memo(state), 1), else_=0)), 0) for state in MemoState]
    counts = connection.execute(select(*having).where(one_of(connection, schema.components.c.fingerprint, keys))).one()
    return [
        FacetValue(state.value, int(count)) for state, count in zip(MemoState, counts, strict=True) if int(count) > 0
    ]
