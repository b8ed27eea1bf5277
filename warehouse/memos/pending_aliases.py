"""Pending aliases: further contents for which a memo will be found once it is ready.

A memo's key depends on the columns that its component reads, coverage on a fragment's content. Fragments that differ only in
other columns share memos. Matching adds a ready memo to the coverage of such a content; for a pending memo it registers an alias,
which the commit of the memo adds to the coverage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from sqlalchemy import Connection, and_, delete, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, insert_absent, one_of


def register_aliases(connection: Connection, noted: Iterable[tuple[str, str]]) -> None:
    """Register contents as aliases of pending memos, as pairs of memo key and content."""
    rows = ({"memo_key": key, "content": content} for key, content in sorted(noted))
    insert_absent(connection, schema.awaited_contents, rows)


def pop_aliases(connection: Connection, keys: Iterable[str]) -> dict[str, set[str]]:
    """Remove and return the aliases of memos that become ready, by key."""
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
    """The contents for which the coverage has the memo of a component in a file."""
    of, members = schema.coverage.c, schema.set_members.c
    query = select(of.content).join(schema.set_members, members.column_set == of.column_set)
    return set(connection.execute(query.where(of.file == file, members.fingerprint == fingerprint)).scalars())


def known_contents(connection: Connection, keys: Iterable[str]) -> dict[str, set[str]]:
    """The contents for which the coverage has these memos, and the aliases of those that are pending, by key."""
    memos, of, members, noted = schema.memos.c, schema.coverage.c, schema.set_members.c, schema.awaited_contents.c
    is_member = and_(members.column_set == of.column_set, members.fingerprint == memos.fingerprint)
    covered = select(memos.memo_key, of.content).join(schema.coverage, of.file == memos.file)
    covered = covered.join(schema.set_members, is_member)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for chunk in chunks(sorted(keys)):
        for query in (
            covered.where(one_of(connection, memos.memo_key, chunk)),
            select(noted.memo_key, noted.content).where(one_of(connection, noted.memo_key, chunk)),
        ):
            for key, content in connection.execute(query):
                found[key].add(content)
    return dict(found)
