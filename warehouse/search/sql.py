"""Conditions and measures of components as SQL over a row of ``components``.

A condition has two forms. ``listing`` lists by an index the components for which it holds; the narrowest condition of
a search uses it. ``holds`` checks one component by an index; the other conditions use it, or all of them if
none is narrow, on components in the requested order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    CompoundSelect,
    Connection,
    FromClause,
    Select,
    and_,
    exists,
    func,
    literal,
    or_,
    select,
    tuple_,
    union_all,
)

from transforms.comparison.pattern_facts import PatternFacts
from warehouse.catalog import schema
from warehouse.scheduling.task_states import MemoState, TaskState
from warehouse.search.measures import hits, is_input, measured_all, saved_secs, secs, size_bytes
from warehouse.search.paging import PageKey
from warehouse.search.query import ComponentQuery, Sort

#: Of a query without a pattern, or of one by names.
NO_FACTS = PatternFacts((), is_whole=False)

#: A condition that holds for at most this number of components is narrow; in the order of a measure, which is computed for each component, for ten
#: times as many.
NARROW = 5_000

Listing = Select[Any] | CompoundSelect[Any]
Where = ColumnElement[bool]

_component = schema.components.c.fingerprint


@dataclass(frozen=True)
class Condition:
    """A condition on a component; ``listing`` is None if no index lists its components."""

    holds: Where
    listing: Listing | None = None


def conditions(query: ComponentQuery, facts: PatternFacts = NO_FACTS) -> tuple[Condition, ...]:
    """The conditions of a query in SQL; of a pattern, the operators and columns that a match needs, and these facts of its nodes."""
    found = [_has_node(needed) for needed in facts.nodes]
    columns = {query.column} if query.column is not None else set()
    operators = {(query.operator, query.operator_version)} if query.operator is not None else set()
    if query.pattern is not None and not facts.is_whole:
        columns |= query.pattern.columns
        operators |= {(name, None) for name in query.pattern.operators} | query.pattern.operator_versions
    found += [_reads(name) for name in sorted(columns)]
    found += [_applies(name, version) for name, version in sorted(operators, key=str) if name is not None]
    if query.subgraph is not None:
        of = schema.component_subgraphs.c
        found.append(_listed(of.fingerprint, starts_with(of.subgraph, query.subgraph)))
    if query.fingerprint is not None:
        listed = schema.components.alias("listed").c.fingerprint
        starts = starts_with(listed, query.fingerprint)
        found.append(Condition(starts_with(_component, query.fingerprint), select(listed).where(starts)))
    if any(name is not None for name in (query.model, query.client, query.table)):
        found.append(_is_read_by(query))
    return (*found, *_plain(query))


def starts_with(column: ColumnElement[str], prefix: str) -> Where:
    """Whether hexadecimal digits have this prefix: a range, for which every database uses an index."""
    return column == prefix if len(prefix) == 64 else and_(column >= prefix, column < prefix + "g")


def _listed(key: Column[str], *where: Where) -> Condition:
    return Condition(exists().where(key == _component, *where), select(key).where(*where))


def _has_node(needed: Collection[str]) -> Condition:
    """Whether one node of a component has all of these facts."""
    of = schema.component_subgraphs.c
    facts = [schema.subgraph_facts.alias() for _ in needed]
    joined: FromClause = schema.component_subgraphs
    for one in facts:
        joined = joined.join(one, one.c.subgraph == of.subgraph)
    having = select(of.fingerprint).select_from(joined)
    having = having.where(*(one.c.fact == fact for one, fact in zip(facts, sorted(needed), strict=True)))
    # Of EXISTS over joined tables PostgreSQL makes a join with all components, also where a page needs a few.
    first = having.where(of.fingerprint == _component).correlate(schema.components).limit(1).scalar_subquery()
    return Condition(first.is_not(None), having)


def _reads(column: str) -> Condition:
    of = schema.component_columns.c
    return _listed(of.fingerprint, of.column_name == column)


def _applies(operator: str, version: int | None) -> Condition:
    of = schema.component_operators.c
    return _listed(of.fingerprint, of.operator == operator, *([] if version is None else [of.version == version]))


def _plain(query: ComponentQuery) -> list[Condition]:
    of = schema.components.c
    least: list[Where] = []
    if query.created_before is not None:
        least.append(of.created_at < query.created_before)
    if query.created_after is not None:
        least.append(of.created_at >= query.created_after)
    if query.state is not None:
        least.append(has_memo(query.state))
    if query.min_size_bytes is not None:
        least.append(size_bytes() >= query.min_size_bytes)
    if query.max_size_bytes is not None:
        least.append(size_bytes() <= query.max_size_bytes)
    if query.min_hits is not None:
        least.append(hits() >= query.min_hits)
    if query.min_saved_secs is not None:
        least.append(saved_secs() >= query.min_saved_secs)
    return [Condition(where) for where in least]


def has_memo(state: MemoState) -> Where:
    """Whether a component has a memo in a state; a pending memo whose task is leased is RUNNING."""
    memos, tasks = schema.memos.c, schema.tasks.c
    stored = MemoState.PENDING if state is MemoState.RUNNING else state
    mine = (memos.fingerprint == _component, memos.state == stored)
    if stored is not MemoState.PENDING:
        return exists().where(*mine)
    leased = tasks.state == TaskState.LEASED
    return exists().where(*mine, tasks.id == memos.task, leased if state is MemoState.RUNNING else ~leased)


def reader_conditions(query: ComponentQuery) -> list[Where]:
    """What a query asks of a model that reads a component."""
    given = {"name": query.model, "client": query.client, "table_name": query.table}
    return [schema.models.c[column] == value for column, value in given.items() if value is not None]


def _is_read_by(query: ComponentQuery) -> Condition:
    """Whether a model reads a component as a query asks, or, of a table, reads what is joined from it."""
    direct = _is_read_where(reader_conditions(query))
    if query.table is None:
        return direct
    joined = _is_joined_from(query.table)
    others = reader_conditions(replace(query, table=None))
    if not others:
        return _either(direct, joined)
    read = _is_read_where(others)
    of = schema.component_columns.c.fingerprint
    both = (
        joined.listing.where(of.in_(read.listing))
        if isinstance(joined.listing, Select) and read.listing is not None
        else None
    )
    return _either(direct, Condition(and_(read.holds, joined.holds), both))


def _either(one: Condition, other: Condition) -> Condition:
    listings = [condition.listing for condition in (one, other) if condition.listing is not None]
    listed = union_all(*(select(listing.subquery()) for listing in listings)) if len(listings) == 2 else None
    return Condition(or_(one.holds, other.holds), listed)


def _is_joined_from(table: str) -> Condition:
    """Whether a component reads a column that is joined from a table."""
    of, joined = schema.component_columns.c, schema.joined_columns
    names = select(joined.c.column_name).where(joined.c.other_table == table)
    return _listed(of.fingerprint, of.column_name.in_(names))


def _is_read_where(where: Sequence[Where]) -> Condition:
    models, inputs, parts = schema.models, schema.model_inputs, schema.component_subgraphs
    direct = select(inputs.c.fingerprint).join(models, models.c.id == inputs.c.model).where(*where)
    inside = (
        select(parts.c.subgraph)
        .join(inputs, inputs.c.fingerprint == parts.c.fingerprint)
        .join(models, models.c.id == inputs.c.model)
        .where(*where, ~is_input(parts.c.subgraph))
    )
    holds = or_(
        direct.where(inputs.c.fingerprint == _component).exists(),
        inside.where(parts.c.subgraph == _component).exists(),
    )
    return Condition(holds, union_all(direct, inside))


def narrowest(connection: Connection, given: Sequence[Condition], sort: Sort = "newest") -> Condition | None:
    """The condition with the fewest components, if it is narrow; counts no further."""
    best, least = None, (NARROW if sort in ("newest", "oldest") else 10 * NARROW) + 1
    for condition in given:
        if condition.listing is not None:
            some = condition.listing.limit(least).subquery()
            found = connection.execute(select(func.count()).select_from(some)).scalar_one()
            if found < least:
                best, least = condition, found
    return best


def filtered(query: Select[Any], given: Sequence[Condition], leading: Condition | None) -> Select[Any]:
    """``query`` over ``components`` with these conditions; ``leading``, one of them or None, is listed."""
    for condition in given:
        if condition is leading and condition.listing is not None:
            query = query.where(_component.in_(condition.listing))
        else:
            query = query.where(condition.holds)
    return query


def ordered(given: Sequence[Condition], leading: Condition | None, sort: Sort, after: PageKey | None) -> Select[Any]:
    """The fingerprints with these conditions in the order of a sort, each with the value that it is ordered by, after a key.

    ``leading``, one of the conditions or None, is listed. Equal values are in the order of fingerprints.
    """
    created = schema.components.c.created_at
    if sort in ("newest", "oldest"):
        found = filtered(select(_component, created.label("value")), given, leading)
        place = tuple_(created, _component)
        if after is not None:
            key = tuple_(literal(after.value, created.type), literal(after.fingerprint, _component.type))
            found = found.where(place < key if sort == "newest" else place > key)
        terms = (created, _component)
        return found.order_by(*(term.desc() for term in terms) if sort == "newest" else terms)
    if leading is None:
        measured = measured_all(sort)
    else:
        measure = {"size": size_bytes, "hits": hits, "saved": saved_secs, "secs": secs}[sort]
        measured = select(_component, measure().label("value"))
    # Materialized: a database that merges the two statements computes the value again for each comparison.
    of = filtered(measured, given, leading).cte("measured").prefix_with("MATERIALIZED").c
    page: Select[Any] = select(of.fingerprint, of.value)
    if after is not None:
        page = page.where(
            or_(of.value < after.value, and_(of.value == after.value, of.fingerprint > after.fingerprint))
        )
    return page.order_by(of.value.desc(), of.fingerprint)
