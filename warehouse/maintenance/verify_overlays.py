"""Verify overlay files: overlaid columns and deletion vectors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.compute as pc
from sqlalchemy import Connection, select

from transforms.joins.column_names import is_joined
from warehouse.catalog import schema
from warehouse.errors import MemoDamaged
from warehouse.files.arrow_file import read_arrow_columns
from warehouse.maintenance.findings import Finding, FindingKind, Problem
from warehouse.storage.storage import Storage
from warehouse.tables.manifests import DELETED

#: Checksums by path and column.
_Checksums = Mapping[str, Mapping[str, str]]

_RESTORE = "restore the file from a backup, or make the change again"
_REPORT = "report it: the catalog contradicts itself"


@dataclass(frozen=True)
class CatalogOverlay:
    """An overlay file in the catalog.

    Attributes:
        path: Its path.
        checksums: The checksum of each column.
        rows: Its rows.
        size_bytes: Its bytes.
        deleted_rows: The events that it deletes; None without a deletion vector that a manifest refers to.
    """

    path: str
    checksums: Mapping[str, str]
    rows: int
    size_bytes: int
    deleted_rows: int | None


def load_overlays(connection: Connection) -> tuple[list[CatalogOverlay], list[Problem]]:
    """Every overlay file, and references of fragments and manifests to unknown ones."""
    rows = connection.execute(select(schema.overlays).order_by(schema.overlays.c.path)).all()
    checksums: defaultdict[str, dict[str, str]] = defaultdict(dict)
    sizes: defaultdict[str, int] = defaultdict(int)
    counts: dict[str, int] = {}
    for row in rows:
        checksums[row.path][row.column_name] = row.checksum
        sizes[row.path] += row.size_bytes
        counts[row.path] = row.rows
    deleted, problems = _deletions(connection, checksums)
    problems += _unknown_columns(connection, checksums)
    files = [
        CatalogOverlay(path, columns, counts[path], sizes[path], deleted.get(path))
        for path, columns in checksums.items()
    ]
    return files, problems


def _deletions(connection: Connection, known: _Checksums) -> tuple[dict[str, int], list[Problem]]:
    """The number of events that each deletion vector deletes, and references to unknown ones."""
    of = schema.manifest_fragments.c
    named: dict[str, int] = {}
    problems = []
    query = select(of.deletions, of.deletions_checksum, of.deleted_rows).where(of.deletions.is_not(None)).distinct()
    for path, checksum, rows in connection.execute(query):
        if known.get(path, {}).get(DELETED) == checksum:
            named[path] = rows
        else:
            problems.append(_problem(path, "a manifest refers to a deletion vector that no change wrote", _REPORT))
    return named, problems


def _unknown_columns(connection: Connection, known: _Checksums) -> list[Problem]:
    # A fragment of a table that was dropped keeps no path. The overlays of a merged fragment are those of its members.
    of = schema.fragments.c
    problems = []
    placed, manifests = schema.manifest_fragments.c, schema.manifests.c
    now = select(placed.fragment).join(schema.manifests, manifests.id == placed.manifest)
    current = set(connection.execute(now.where(manifests.current.is_(True))).scalars())
    query = select(of.id, of.digests, of.overlays).where(of.overlays.is_not(None), of.members.is_(None))
    for row in connection.execute(query):
        for column, path in row.overlays.items():
            if path not in known and is_joined(column) and row.id not in current:
                continue  # gc has forgotten it: warehouse.joins.superseded
            if path and known.get(path, {}).get(column) != row.digests.get(column):
                what = f"fragment {row.id} refers to an overlay of column {column} that no change wrote"
                problems.append(_problem(path, what, _REPORT))
    return problems


def check_overlay(storage: Storage, file: CatalogOverlay) -> list[Problem]:
    """Problems with the bytes of an overlay file, one per column."""
    if not storage.exists(file.path):
        return [_problem(file.path, "the file is not there", _RESTORE, "missing file")]
    problems = []
    for column, checksum in sorted(file.checksums.items()):
        where = f"{file.path}, column {column}"
        try:
            array = read_arrow_columns(storage, file.path, {column: checksum})[column]
        except MemoDamaged as error:
            what = error.what if error.value is None else f"{error.what}: {error.value}"
            problems.append(_problem(where, what, _RESTORE))
            continue
        if len(array) != file.rows:
            problems.append(_problem(where, f"it has {len(array)} rows, the catalog says {file.rows}", _RESTORE))
        elif column == DELETED and file.deleted_rows is not None:
            deleted = pc.sum(array).as_py() or 0
            if deleted != file.deleted_rows:
                what = f"it deletes {deleted} events, the manifest says {file.deleted_rows}"
                problems.append(_problem(where, what, _REPORT))
    return problems


def _problem(where: str, what: str, step: str, kind: FindingKind = "overlay") -> Problem:
    return Problem(Finding(kind, where, what, step))
