"""Statistics of features between training and the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.terminal.output import say
from transforms.derived_documents import document_of
from transforms.errors import HeadraceError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from trainer.planning.feature_statistics import FeatureStatistics
    from trainer.run.progress.run_statistics import NamedStatistics, Record
    from warehouse.models.feature_statistics import Document
    from warehouse.warehouse import Warehouse

#: What trains a run, as samples name it: a single process, or a job, whose hosts are pooled.
PROCESS, JOB = "process", "job"


def recorder(warehouse: Warehouse, host: str) -> Record:
    """Records samples in the catalog. Training goes on without a catalog that cannot be reached: the sample is lost, and said so."""
    from warehouse.models.feature_statistics import Sample, record_sample

    def record(run: str, commit: int, features: Mapping[str, NamedStatistics]) -> None:
        documents = {key: _document(one.statistics) for key, one in features.items()}
        try:
            record_sample(warehouse, Sample(run, commit, host, documents), merge_documents)
        except HeadraceError as error:
            say(f"the statistics of commit {commit} were not recorded, training goes on: {error}")

    return record


def _document(statistics: FeatureStatistics) -> Document:
    found: Document = document_of(statistics)
    return found


def read_document(document: Document, fingerprint: str) -> FeatureStatistics:
    """The statistics in a document of the catalog. Raises :class:`~trainer.errors.TornCheckpoint`."""
    from trainer.options.document_field import OPEN, DocumentField
    from trainer.planning.feature_statistics import FeatureStatistics

    return OPEN.read(FeatureStatistics, DocumentField(document, f"statistics of component {fingerprint[:12]}"))


def statistics_of_inputs(connection: Connection, fingerprints: Mapping[str, str]) -> dict[str, FeatureStatistics]:
    """The newest statistics in the catalog of a model's inputs; ``fingerprints``: of their components, by name."""
    from warehouse.models.feature_statistics import newest_statistics

    found = newest_statistics(connection, list(fingerprints.values()))
    return {name: read_document(found[key].document, key) for name, key in fingerprints.items() if key in found}


def merge_documents(old: Document | None, new: Document) -> Document:
    """The aged merge of two documents; an old one that is damaged, or of a later release, is replaced."""
    from trainer.errors import TornCheckpoint
    from trainer.planning.feature_statistics import aged_merge

    sample = read_document(new, "sample")
    if old is None:
        return _document(sample)
    try:
        known = read_document(old, "catalog")
    except TornCheckpoint as error:
        say(f"statistics in the catalog were replaced by new ones: {error}")
        return _document(sample)
    return _document(aged_merge(known, sample))
