"""Search the components that models were made of: what is computed, from which columns, for whom, at what cost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, select

from transforms.comparison.pattern import Pattern, find
from transforms.graphs.graph import component_from_document
from warehouse.catalog import schema
from warehouse.errors import UnknownComponent
from warehouse.models.models import load_documents
from warehouse.search.components import ComponentRow, read_components
from warehouse.search.names import check_names
from warehouse.search.query import ComponentQuery, Sort
from warehouse.search.sql import conditions, filtered, narrowest, order_of, starts_with
from warehouse.warehouse import Warehouse

#: Components whose graphs are held at once while a pattern is sought in them.
PATTERN_BATCH = 500

_EVERYTHING = ComponentQuery()


@dataclass(frozen=True)
class SearchResult:
    """One page of what a search finds. ``more``: there are further ones. ``total``: how many in all, where asked."""

    components: tuple[ComponentRow, ...]
    more: bool
    total: int | None = None


def search_components(
    warehouse: Warehouse,
    query: ComponentQuery = _EVERYTHING,
    *,
    sort: Sort = "newest",
    limit: int = 50,
    offset: int = 0,
    count: bool = False,
) -> SearchResult:
    """The components that a query finds: ``limit`` of them from the one at ``offset``, in the order of ``sort``.

    ``newest`` and ``oldest`` go by when a component was first asked for; the others put the largest first. Only the
    components of the page are read in full. ``count`` also counts all of them, which costs more the more there are.
    Raises :class:`UnknownModel`, :class:`UnknownClient`, :class:`UnknownTable`, :class:`UnknownColumn` and
    :class:`InputError` for names that mean nothing, with those nearest to them.
    """
    with warehouse.catalog.read() as connection:
        check_names(connection, query)
        found = _ordered(connection, query, sort)
        total: int | None = None
        if query.pattern is None:
            page = list(connection.execute(found.limit(limit + 1).offset(offset)).scalars())
            if count:
                unordered = found.order_by(None).subquery()
                total = connection.execute(select(func.count()).select_from(unordered)).scalar_one()
        else:
            matching = _matching(connection, query.pattern, _stream(connection, found))
            skipped = sum(1 for _ in itertools.islice(matching, offset))
            page = list(itertools.islice(matching, limit + 1))
            if count:
                total = skipped + len(page) + sum(1 for _ in matching)
        return SearchResult(read_components(connection, page[:limit]), len(page) > limit, total)


def matching_fingerprints(connection: Connection, query: ComponentQuery) -> Iterator[str]:
    """The fingerprints of everything that a query finds, in no order. Names are not checked."""
    given = conditions(query)
    found = filtered(select(schema.components.c.fingerprint), given, narrowest(connection, given))
    streamed = _stream(connection, found)
    return streamed if query.pattern is None else _matching(connection, query.pattern, streamed)


def get_component(warehouse: Warehouse, fingerprint_prefix: str) -> ComponentRow:
    """The one component whose fingerprint starts so. Raises :class:`UnknownComponent` for none and for several."""
    of = schema.components.c.fingerprint
    with warehouse.catalog.read() as connection:
        starts = select(of).where(starts_with(of, fingerprint_prefix)).order_by(of).limit(11)
        found = connection.execute(starts).scalars().all()
        if len(found) != 1 or not fingerprint_prefix:
            raise UnknownComponent("no such component" if not found else "several components start so",
                                   value=fingerprint_prefix, allowed=", ".join(key[:16] for key in found[:10]),
                                   next_step="headrace graphs ls")  # fmt: skip
        return read_components(connection, found)[0]


def _ordered(connection: Connection, query: ComponentQuery, sort: Sort) -> Select[Any]:
    given = conditions(query)
    found = filtered(select(schema.components.c.fingerprint), given, narrowest(connection, given))
    return found.order_by(*order_of(sort))


def _stream(connection: Connection, query: Select[Any]) -> Iterator[str]:
    for (fingerprint,) in connection.execute(query, execution_options={"yield_per": PATTERN_BATCH}):
        yield fingerprint


def _matching(connection: Connection, pattern: Pattern, fingerprints: Iterator[str]) -> Iterator[str]:
    """Those that contain a match, in their order; a batch of graphs is read at a time."""
    while batch := list(itertools.islice(fingerprints, PATTERN_BATCH)):
        documents = load_documents(connection, batch)
        yield from (key for key in batch if find(pattern, component_from_document(documents[key])))
