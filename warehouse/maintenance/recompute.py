"""Compute a random sample of memos again from raw data, and compare bit by bit."""

from __future__ import annotations

from random import Random
from typing import Any

from sqlalchemy import Connection, func, select

from transforms.errors import DataError
from transforms.execution.plan import compile_plan
from transforms.graphs.graph import Node, component_from_document, raw_columns
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.catalog.fragment_rows import is_unit
from warehouse.errors import MemoDamaged
from warehouse.files.artifacts import ArtifactSource
from warehouse.files.digests import column_digest
from warehouse.files.memo_file import read_memo_file
from warehouse.joins.outdated import OutdatedJoins, outdated_joins
from warehouse.joins.preview import previewed_columns
from warehouse.maintenance.findings import REPAIR, BadMemo, Finding, FindingKind, Problem
from warehouse.maintenance.progress import Progress, quiet
from warehouse.models.joined_columns import joined_columns
from warehouse.models.models import load_documents
from warehouse.scheduling.task_states import MemoState
from warehouse.tables.manifests import current_fragments, find_table, fragments_by_row
from warehouse.tables.raw import read_raw
from warehouse.tables.table import Fragment, memo_keys_of
from warehouse.warehouse import Warehouse

#: The sample is drawn exactly among up to this number of memos.
_FEW = 10_000


def sample_memos(connection: Connection, count: int, random: Random) -> list[Any]:
    """``count`` different ready memos of current data, or all if there are fewer; by key.

    Among many memos, components are drawn with the number of their memos as weights, then a random key: a component's keys
    are evenly distributed behind the first digits of its fingerprint, so that all memos are about equally likely.
    """
    of, files = schema.memos.c, schema.memo_files.c
    ready = (of.state == MemoState.READY, is_unit(of.fragment))
    most = max(_FEW, 2 * count)
    keys = connection.execute(select(of.memo_key).where(*ready).order_by(of.memo_key).limit(most)).scalars().all()
    chosen: set[str] = set()
    if len(keys) < most:
        chosen.update(random.sample(keys, min(count, len(keys))))
    else:
        counted = select(of.fingerprint, func.count()).where(of.state == MemoState.READY).group_by(of.fingerprint)
        weights = {row.fingerprint: row[1] for row in connection.execute(counted.order_by(of.fingerprint))}
        first = select(of.memo_key).where(*ready).order_by(of.memo_key).limit(1)
        while len(chosen) < count:
            (name,) = random.choices(list(weights), list(weights.values()))
            start, end = memo_keys_of(name)
            pivot = f"{start}{random.getrandbits(4 * (64 - len(start))):0{64 - len(start)}x}"
            key = connection.execute(first.where(of.memo_key >= pivot, of.memo_key < end)).scalar()
            key = key or connection.execute(first.where(of.memo_key >= start, of.memo_key < end)).scalar()
            if key is None:
                del weights[name]  # all of its memos belong to replaced data
            else:
                chosen.add(key)
    query = select(of.memo_key, of.fingerprint, of.fragment, files.path, files.checksum)
    query = query.join(schema.memo_files, files.id == of.file).order_by(of.memo_key)
    return [row for chunk in chunks(sorted(chosen)) for row in connection.execute(query.where(of.memo_key.in_(chunk)))]


def recompute_sample(
    warehouse: Warehouse, count: int, random: Random, progress: Progress = quiet
) -> tuple[int, list[Problem]]:
    """Compute a sample again; returns the number of memos, and the problems."""
    with warehouse.catalog.read() as connection:
        chosen = sample_memos(connection, count, random)
        fragments = fragments_by_row(connection, {one.fragment for one in chosen})
        documents = load_documents(connection, {one.fingerprint for one in chosen})
        components = {fingerprint: component_from_document(found) for fingerprint, found in documents.items()}
    problems: list[Problem] = []
    for done, one in enumerate(chosen):
        progress(done, len(chosen), one.path)
        problems += _recompute(warehouse, one, components[one.fingerprint], fragments[one.fragment])
        progress(done + 1, len(chosen), "")
    return len(chosen), problems


def recompute_joined(
    warehouse: Warehouse, count: int, random: Random, progress: Progress = quiet
) -> tuple[int, list[Problem]]:
    """Compute joined columns of a sample of fragments again, where they follow what is seen now.

    Returns the number of columns, and the problems.
    """
    with warehouse.catalog.read() as connection:
        records = joined_columns(connection)
        fragments = {name: current_fragments(connection, name) for name in {one.table for one in records}}
        tables = {name: find_table(connection, name) for name in fragments}
    outdated: set[tuple[int, str]] = set()
    for joins in outdated_joins(warehouse, {(one.table, one.column) for one in records}):
        if isinstance(joins, OutdatedJoins):
            outdated |= {(one.own.placed.row, record.column) for one in joins.fragments for record, _ in one.columns}
        else:
            outdated |= {(placed.row, one.column) for one in joins.records for placed in fragments[one.table]}
    there = [
        (record, placed)
        for record in records
        for placed in fragments[record.table]
        if record.column in placed.fragment.digests and (placed.row, record.column) not in outdated
    ]
    chosen = random.sample(there, min(count, len(there)))
    problems = []
    for done, (record, placed) in enumerate(chosen):
        where = f"{placed.fragment.path}, column {record.column}"
        progress(done, len(chosen), where)
        table = tables[record.table]
        assert table is not None, "it has fragments"
        try:
            (values,) = previewed_columns(warehouse, table, {record.column: record.definition}, [placed])[record.column]
        except DataError as error:
            problems.append(
                Problem(Finding("raw data", error.where or where, error.what, error.next_step or "restore the data"))
            )
            continue
        if column_digest(values) != placed.fragment.digests[record.column]:
            what = "computing it again gave other values than the joined column"
            problems.append(Problem(Finding("recomputed", where, what, "report it: equal rows must give equal values")))
    return len(chosen), problems


def _recompute(warehouse: Warehouse, memo: Any, root: Node, fragment: Fragment) -> list[Problem]:
    try:
        raw = read_raw(warehouse.storage, fragment, sorted({column.name for column in raw_columns(root)}))
        result = compile_plan({"it": root}, ArtifactSource(warehouse.storage.home)).run(raw, checked=True)
    except DataError as error:
        step = error.next_step or "restore the data, or register the table again"
        said = f"{error.what}: {error.value}" + (f" instead of {error.allowed}" if error.allowed else "")
        return [Problem(Finding("raw data", error.where or fragment.path, said, step))]
    try:
        read = read_memo_file(warehouse.storage, memo.path, [memo.fingerprint], memo.checksum, rows=fragment.rows)
        kept = read[memo.fingerprint]
    except MemoDamaged as error:
        return [_bad(memo, "damaged memo", error.what, REPAIR)]
    if result.failures:
        what = f"computing it again failed: {result.failures['it'].error}"
        step = "report it, with the output of headrace graphs show for the component"
        return [Problem(Finding("recomputed", memo.path, what, step, memo.fingerprint))]
    if column_digest(result.columns["it"]) != column_digest(kept):
        what = "computing it again gave other values than the memo"
        step = f"{REPAIR}; an operator whose output changes must change its version: report it"
        return [_bad(memo, "recomputed", what, step)]
    return []


def _bad(memo: Any, kind: FindingKind, what: str, step: str) -> Problem:
    return Problem(Finding(kind, memo.path, what, step, memo.fingerprint), BadMemo(memo.memo_key, memo.path, what))
