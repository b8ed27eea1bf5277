"""Memos that several contents wait for: where, besides, one will be found once it is ready.

A memo's key is of the columns that its component reads; coverage is of a fragment's content. Fragments that differ only in
other columns (in two tables, or in two hours of a column that is constant) share memos. A memo that is ready is noted for a
content when a survey meets it there; one that is queued or being computed is noted by whoever commits it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from sqlalchemy import Connection, delete, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, insert_absent, one_of


def register_aliases(connection: Connection, noted: Iterable[tuple[str, str]]) -> None:
    """Note contents, by the key of a memo that is not ready."""
    rows = ({"memo_key": key, "content": content} for key, content in sorted(noted))
    insert_absent(connection, schema.awaited_contents, rows)


def pop_aliases(connection: Connection, keys: Iterable[str]) -> dict[str, set[str]]:
    """The contents noted for memos that become ready now, by key; they are noted no more."""
    of = schema.awaited_contents.c
    found: defaultdict[str, set[str]] = defaultdict(set)
    for chunk in chunks(sorted(keys)):
        mine = one_of(connection, of.memo_key, chunk)
        rows = connection.execute(select(of.memo_key, of.content).where(mine)).all()
        for key, content in rows:
            found[key].add(content)
        if rows:
            connection.execute(delete(schema.awaited_contents).where(mine))
    return dict(found)


def contents_of_memo(connection: Connection, file: int, fingerprint: str) -> set[str]:
    """The contents for which the memo of a component in a file is found."""
    of, members = schema.coverage.c, schema.set_members.c
    query = select(of.content).join(schema.set_members, members.column_set == of.column_set)
    return set(connection.execute(query.where(of.file == file, members.fingerprint == fingerprint)).scalars())
