"""The statistics of features that a run has sampled, in a file beside its checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from trainer.checkpoints.manifest import canonical_json, parse_json
from trainer.checkpoints.not_written import translated_write_errors
from trainer.checkpoints.open_run import open_run
from trainer.errors import TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from trainer.planning.feature_statistics import FeatureStatistics, aged_merge
from trainer.run.progress.identity import RunIdentity
from transforms.derived_documents import document_of

#: The file's name among the checkpoints.
STATISTICS: Final = "statistics.json"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class NamedStatistics:
    """The statistics of a feature, and its name in the run."""

    name: str
    statistics: FeatureStatistics


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """What the committed epochs of a run have sampled.

    Attributes:
        run: a digest of the run's table, inputs, label and options.
        first_epoch: the first epoch of the sample.
        epochs_done: the epoch after its last one.
        features: the statistics by the fingerprint of the feature's component, so that a renamed feature keeps them.
    """

    run: str
    first_epoch: int
    epochs_done: int
    features: Mapping[str, NamedStatistics]

    def check_read(self, part: DocumentField) -> None:
        """Raise :class:`TornCheckpoint` for epochs that end before the first one."""
        if self.first_epoch > self.epochs_done:
            raise TornCheckpoint("statistics must end after their first epoch", where=part.place,
                                 value=(self.first_epoch, self.epochs_done))  # fmt: skip

    def to_document(self) -> dict[str, Any]:
        """A JSON object."""
        return {"format": _FORMAT, **document_of(self)}

    def with_epoch(self, epochs_done: int, sampled: Mapping[str, NamedStatistics]) -> RunStatistics:
        """With the sample of one more epoch; an epoch that is in the statistics already does not count again."""
        if epochs_done <= self.epochs_done:
            return self
        merged = dict(self.features)
        for fingerprint, new in sampled.items():
            old = merged.get(fingerprint)
            both = new.statistics if old is None else aged_merge(old.statistics, new.statistics)
            merged[fingerprint] = NamedStatistics(new.name, both)
        return replace(self, epochs_done=epochs_done, features=merged)


#: Records the sample of a committed epoch: the run's key, the number of its commit, and the statistics by fingerprint.
Record = Callable[[str, int, Mapping[str, NamedStatistics]], None]


def run_key(identity: RunIdentity) -> str:
    """A digest of all that a run trains but its partitions, to which new ones come."""
    document = {**identity.to_document(), "partitions": [], "fragments": {}}
    return hashlib.sha256(canonical_json(document)).hexdigest()


def read_statistics(run_dir: str | Path) -> RunStatistics | None:
    """The statistics of a run; None if it has none. Raises :class:`TornCheckpoint` for a damaged file."""
    files = open_run(run_dir)
    if STATISTICS not in files.names():
        return None
    field = DocumentField(parse_json(files.read(STATISTICS), files.place(STATISTICS)), STATISTICS)
    if (found := field.at("format").count()) != _FORMAT:
        raise TornCheckpoint(f"statistics must have format {_FORMAT}, got {found}", where=field.place, value=found)
    return OPEN.read(RunStatistics, field)


class StatisticsFile:
    """Adds the sample of each epoch to the file of a run.

    A damaged file, or that of another run, is replaced: a sample may be lost, and none counts twice. ``on_skip`` takes the reason,
    ``record`` each sample that was added.
    """

    def __init__(
        self,
        run_dir: str | Path,
        identity: RunIdentity,
        epochs_done: int,
        on_skip: Callable[[str], None],
        record: Record | None = None,
    ) -> None:
        self._run_dir, self._record = run_dir, record
        self._fingerprints = {item["name"]: item["fingerprint"] for item in identity.inputs}
        key = run_key(identity)
        try:
            saved = read_statistics(run_dir)
        except TornCheckpoint as error:
            on_skip(str(error))
            saved = None
        # The file of a run that began again has epochs that are still to come.
        is_continued = saved is not None and saved.run == key and saved.epochs_done <= epochs_done
        self._statistics = (
            saved if saved is not None and is_continued else RunStatistics(key, epochs_done, epochs_done, {})
        )

    def add(self, epochs_done: int, sampled: Mapping[str, FeatureStatistics]) -> None:
        """Add the sample of the epoch before ``epochs_done``, by feature. Raises :class:`CheckpointNotWritten` if it cannot be written."""
        if not sampled:
            return
        named = {self._fingerprints[name]: NamedStatistics(name, one) for name, one in sampled.items()}
        self._statistics = self._statistics.with_epoch(epochs_done, named)
        files = open_run(self._run_dir)
        with translated_write_errors(files.place(STATISTICS), "the statistics of features"):
            files.put(STATISTICS, canonical_json(self._statistics.to_document()))
        if self._record is not None:
            self._record(self._statistics.run, epochs_done, named)
