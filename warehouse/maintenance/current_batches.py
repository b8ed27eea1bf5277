"""Which files of batches a training may still read: those of a live model whose events are in its table as they were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from sqlalchemy import Connection

from transforms.errors import DataError
from warehouse.files.batch_files.origin import BatchOrigin, read_origin
from warehouse.models.models import all_models
from warehouse.storage.storage import Storage
from warehouse.tables.content import content_digest
from warehouse.tables.manifests import current_fragments


def current_batches(connection: Connection, storage: Storage, paths: Sequence[str]) -> set[str]:
    """The files, of some, that are current: not those of other data, of earlier versions of a model, or with a damaged head."""
    live = {(one.name, one.version, one.table) for one in all_models(connection, live=True)}

    @cache
    def contents(table: str, columns: tuple[str, ...]) -> frozenset[str]:
        placed = current_fragments(connection, table)
        return frozenset(content_digest(one.fragment, columns) for one in placed)

    return {
        path
        for path, origin in _origins(storage, paths)
        if (origin.model, origin.model_version, origin.table) in live
        and contents(origin.table, origin.columns).issuperset(origin.contents)
    }


def _origins(storage: Storage, paths: Sequence[str]) -> Iterable[tuple[str, BatchOrigin]]:
    """The origin of each file; a file that is damaged, or was removed meanwhile, has none."""
    for path in paths:
        try:
            with Path(storage.root, path).open("rb") as file:
                yield path, read_origin(file)[0]
        except (FileNotFoundError, DataError):
            continue
