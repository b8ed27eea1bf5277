"""Statistics of features in the catalog, by component, so that all models with the component share them.

The documents are the trainer's: it validates and merges them, and the catalog keeps their versions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, select

from warehouse.catalog import schema
from warehouse.catalog.bulk import insert_rows, one_of
from warehouse.warehouse import Warehouse

#: The newest versions of a component's statistics that are kept.
KEPT_VERSIONS: Final = 8
#: The newest epochs of a run and host that are remembered; an epoch below them counts as recorded.
KEPT_EPOCHS: Final = 256

Document = Mapping[str, Any]
#: From the newest document of a component, if it has one, and that of a sample to the next document.
Merge = Callable[[Document | None, Document], Document]


@dataclass(frozen=True, slots=True)
class Sample:
    """What one host has sampled in one committed epoch of a run.

    Attributes:
        run: the run's key, of at most 64 characters.
        epoch: the number of its commit.
        host: the host, or what trains the run.
        documents: the statistics by the fingerprint of a component.
    """

    run: str
    epoch: int
    host: str
    documents: Mapping[str, Document]


@dataclass(frozen=True, slots=True)
class StoredStatistics:
    """The newest statistics of a component.

    Attributes:
        version: counts the samples that were recorded.
        document: the statistics.
        recorded_at: when, in epoch seconds.
    """

    fingerprint: str
    version: int
    document: Document
    recorded_at: float


@dataclass(frozen=True, slots=True)
class FeatureUse:
    """An input of a live model: its name and its component."""

    fingerprint: str
    name: str
    model: str


def record_sample(warehouse: Warehouse, sample: Sample, merge: Merge) -> bool:
    """Merge a sample into the statistics; False if it is in them already.

    All of it is one transaction: of two writers, the second merges into what the first has written. ``merge`` must be pure, for it
    is called again where a transaction is repeated.
    """
    now = warehouse.clock()

    def record(connection: Connection) -> bool:
        if not _is_new(connection, sample):
            return False
        connection.execute(
            insert(schema.feature_samples).values(run=sample.run, host=sample.host, epoch=sample.epoch, recorded_at=now)
        )
        _forget_epochs(connection, sample)
        known = newest_statistics(connection, sample.documents)
        versions = {key: 1 + (known[key].version if key in known else 0) for key in sorted(sample.documents)}
        rows = [
            {
                "fingerprint": key,
                "version": version,
                "document": dict(merge(known[key].document if key in known else None, sample.documents[key])),
                "recorded_at": now,
            }
            for key, version in versions.items()
        ]
        insert_rows(connection, schema.feature_statistics, rows)
        _forget_versions(connection, versions)
        return True

    return warehouse.catalog.run(record, idempotent=True)


def newest_statistics(
    connection: Connection, fingerprints: Collection[str] | None = None
) -> Mapping[str, StoredStatistics]:
    """The newest statistics of these components, or of all, by fingerprint."""
    kept = schema.feature_statistics
    newest = select(kept.c.fingerprint, func.max(kept.c.version).label("version")).group_by(kept.c.fingerprint)
    if fingerprints is not None:
        newest = newest.where(one_of(connection, kept.c.fingerprint, list(fingerprints)))
    last = newest.subquery()
    found = connection.execute(
        select(kept.c.fingerprint, kept.c.version, kept.c.document, kept.c.recorded_at).join(
            last, (kept.c.fingerprint == last.c.fingerprint) & (kept.c.version == last.c.version)
        )
    )
    return {row.fingerprint: StoredStatistics(*row) for row in found}


def all_uses(connection: Connection) -> tuple[FeatureUse, ...]:
    """The inputs of live models, by name and model."""
    inputs, models = schema.model_inputs, schema.models
    found = connection.execute(
        select(inputs.c.fingerprint, inputs.c.name, models.c.name)
        .join(models, models.c.id == inputs.c.model)
        .where(models.c.live)
        .order_by(inputs.c.name, models.c.name)
    )
    return tuple(FeatureUse(*row) for row in found)


def _is_new(connection: Connection, sample: Sample) -> bool:
    kept = schema.feature_samples
    epochs = set(
        connection.execute(select(kept.c.epoch).where(kept.c.run == sample.run, kept.c.host == sample.host)).scalars()
    )
    return sample.epoch not in epochs and sample.epoch > max(epochs, default=0) - KEPT_EPOCHS


def _forget_epochs(connection: Connection, sample: Sample) -> None:
    kept = schema.feature_samples
    connection.execute(
        delete(kept).where(
            kept.c.run == sample.run, kept.c.host == sample.host, kept.c.epoch <= sample.epoch - KEPT_EPOCHS
        )
    )


def _forget_versions(connection: Connection, versions: Mapping[str, int]) -> None:
    kept = schema.feature_statistics
    for fingerprint, version in versions.items():
        if version > KEPT_VERSIONS:
            connection.execute(
                delete(kept).where(kept.c.fingerprint == fingerprint, kept.c.version <= version - KEPT_VERSIONS)
            )
