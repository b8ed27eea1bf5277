"""Search the components of models, with their columns, readers and costs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, Select, func, literal, select

from transforms.comparison.pattern import Pattern, PatternFinder
from transforms.comparison.pattern_facts import PatternFacts, pattern_facts
from transforms.graphs.component_reader import ComponentReader
from transforms.operators import REGISTRY
from warehouse.catalog import schema
from warehouse.errors import UnknownComponent
from warehouse.models.models import load_documents
from warehouse.search.components import ComponentRow, read_components
from warehouse.search.names import check_names
from warehouse.search.paging import PageKey
from warehouse.search.query import ComponentQuery, Sort
from warehouse.search.sql import NO_FACTS, conditions, filtered, narrowest, ordered, starts_with
from warehouse.warehouse import Warehouse

#: Components whose graphs are in memory at once while a pattern is matched.
PATTERN_BATCH = 500

_EVERYTHING = ComponentQuery()


@dataclass(frozen=True)
class SearchResult:
    """One page of a search.

    Attributes:
        components: Those of the page.
        after: The key after which the next page begins; None if there are no further components.
        total: Their number, if requested.
        is_least: Whether there are more than ``total``, at which the count ended.
    """

    components: tuple[ComponentRow, ...]
    after: PageKey | None
    total: int | None = None
    is_least: bool = False

    @property
    def more(self) -> bool:
        """Whether there are further components."""
        return self.after is not None


def search_components(
    warehouse: Warehouse,
    query: ComponentQuery = _EVERYTHING,
    *,
    sort: Sort = "newest",
    limit: int = 50,
    offset: int = 0,
    after: PageKey | None = None,
    count: bool = False,
    most_counted: int | None = None,
) -> SearchResult:
    """The components that fulfil a query: ``limit`` of them in the order of ``sort``, after a key or from ``offset`` on.

    ``newest`` and ``oldest`` use the time of the first request; the others list the largest first. Only the
    components of the page are read in full. A page after the key of the page before costs no more than the first one; components that come or
    go between two pages do not move the others. ``count`` also counts all of them, at a cost that grows with their number, or with ``most_counted``, at which the
    count ends.
    Raises :class:`UnknownModel`, :class:`UnknownClient`, :class:`UnknownTable`, :class:`UnknownColumn` and
    :class:`InputError` for unknown names, with the nearest ones.
    """
    with warehouse.catalog.read() as connection:
        check_names(connection, query)
        facts, pattern = _read_pattern(connection, query)
        given = conditions(query, facts)
        leading = narrowest(connection, given, sort)
        found = ordered(given, leading, sort, after)
        every = filtered(select(schema.components.c.fingerprint), given, leading)
        further = None if most_counted is None else most_counted + 1
        total: int | None = None
        if pattern is None:
            page = [_placed(row) for row in connection.execute(found.limit(limit + 1).offset(offset))]
            if count:
                counted = every if further is None else every.limit(further)
                total = connection.execute(select(func.count()).select_from(counted.subquery())).scalar_one()
        else:
            matching = _matching(connection, pattern, _stream(connection, found))
            skipped = sum(1 for _ in itertools.islice(matching, offset))
            page = list(itertools.islice(matching, limit + 1))
            if count and after is None:
                seen = skipped + len(page)
                rest = None if further is None else max(further - seen, 0)
                total = seen + sum(1 for _ in itertools.islice(matching, rest))
            elif count:
                all_of_them = _matching(connection, pattern, _stream(connection, every.add_columns(literal(0))))
                total = sum(1 for _ in itertools.islice(all_of_them, further))
        is_least = total is not None and most_counted is not None and total > most_counted
        shown = most_counted if is_least else total
        keys = page[:limit]
        next_key = keys[-1] if len(page) > limit else None
        return SearchResult(read_components(connection, [key.fingerprint for key in keys]), next_key, shown, is_least)


def matching_fingerprints(connection: Connection, query: ComponentQuery) -> Iterator[str]:
    """The fingerprints of all components that fulfil a query, in no order. Names are not checked."""
    facts, pattern = _read_pattern(connection, query)
    given = conditions(query, facts)
    found = filtered(select(schema.components.c.fingerprint), given, narrowest(connection, given))
    streamed = _stream(connection, found.add_columns(literal(0)))
    return (key.fingerprint for key in (streamed if pattern is None else _matching(connection, pattern, streamed)))


def newest_matching(connection: Connection, query: ComponentQuery, most: int) -> list[str]:
    """The fingerprints of at most ``most`` components that fulfil a query, newest first. Names are not checked."""
    facts, pattern = _read_pattern(connection, query)
    given = conditions(query, facts)
    found = ordered(given, narrowest(connection, given), "newest", None)
    if pattern is None:
        return [_placed(row).fingerprint for row in connection.execute(found.limit(most))]
    matching = _matching(connection, pattern, _stream(connection, found))
    return [key.fingerprint for key in itertools.islice(matching, most)]


def get_component(warehouse: Warehouse, fingerprint_prefix: str) -> ComponentRow:
    """The only component with this fingerprint prefix. Raises :class:`UnknownComponent` for none and for several."""
    of = schema.components.c.fingerprint
    with warehouse.catalog.read() as connection:
        starts = select(of).where(starts_with(of, fingerprint_prefix)).order_by(of).limit(11)
        found = connection.execute(starts).scalars().all()
        if len(found) != 1 or not fingerprint_prefix:
            raise UnknownComponent("no such component" if not found else "several components have this fingerprint prefix",
                                   value=fingerprint_prefix, allowed=", ".join(key[:16] for key in found[:10]),
                                   next_step="headrace graphs ls")  # fmt: skip
        return read_components(connection, found)[0]


def _stream(connection: Connection, query: Select[Any]) -> Iterator[PageKey]:
    for row in connection.execute(query, execution_options={"yield_per": PATTERN_BATCH}):
        yield _placed(row)


def _placed(row: Any) -> PageKey:
    """The key of a row; PostgreSQL gives sums of integers as decimals."""
    fingerprint, value = row
    return PageKey(int(value) if isinstance(value, Decimal) else value, fingerprint)


def _matching(connection: Connection, pattern: Pattern, keys: Iterator[PageKey]) -> Iterator[PageKey]:
    """The components in which the pattern matches, in order; graphs are read in batches."""
    reader, finder = ComponentReader(), PatternFinder(pattern)
    while batch := list(itertools.islice(keys, PATTERN_BATCH)):
        documents = load_documents(connection, [key.fingerprint for key in batch])
        yield from (key for key in batch if finder.is_in(reader.read(documents[key.fingerprint])))


def _read_pattern(connection: Connection, query: ComponentQuery) -> tuple[PatternFacts, Pattern | None]:
    """The facts by which the pattern of a query is searched, and the pattern itself if graphs must be read to say where it matches.

    Names and facts say it for operators of today's versions only.
    """
    pattern = query.pattern
    if pattern is None or not _has_todays_versions(connection, pattern):
        return NO_FACTS, pattern
    if pattern.is_by_names:
        return NO_FACTS, None
    facts = pattern_facts(pattern)
    return facts, None if facts.is_whole else pattern


def _has_todays_versions(connection: Connection, pattern: Pattern) -> bool:
    """Whether all components have the operators of a pattern in their versions of today."""
    of = schema.component_operators.c
    for name in sorted(pattern.operators):
        today = REGISTRY[name].version
        for other in (of.version < today, of.version > today):  # two ranges of the index
            if connection.execute(select(of.version).where(of.operator == name, other).limit(1)).first() is not None:
                return False
    return True
