"""The figures of a run's commits on a fixed range of events: a document in the folder of the run, which is replaced as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from trainer.checkpoints.manifest import canonical_json, parse_json
from trainer.errors import TornCheckpoint
from trainer.model.scores import StoredScores
from trainer.options.document_field import OPEN, DocumentField
from transforms.derived_documents import document_of, number, whole
from warehouse.errors import MissingFile
from warehouse.storage.storage import Storage

_FORMAT, _NAME = "headrace-evaluations-1", "evaluations.json"
_MOST_BYTES = 1 << 26
_COUNT = whole(most=1 << 62)
#: The evaluations that are kept.
MOST_EVALUATIONS = 10_000


@dataclass(frozen=True, slots=True)
class EvaluatedCommit:
    """The figures of one commit.

    Attributes:
        checkpoint: its name.
        epochs, step: of the run at the commit.
        start, end: the range of time of the events, as it was given; empty: without a limit.
        table_version: the version of the table that was read.
        scores: the figures.
        secs: what scoring took.
    """

    checkpoint: str
    epochs: Annotated[int, _COUNT]
    step: Annotated[int, _COUNT]
    start: str
    end: str
    table_version: Annotated[int, _COUNT]
    scores: StoredScores
    secs: Annotated[float, number(0.0)]


@dataclass(frozen=True, slots=True)
class EvaluationLog:
    """The evaluations of a run.

    Attributes:
        format: of the document.
        commits: in the order in which they were evaluated.
    """

    format: str = _FORMAT
    commits: tuple[EvaluatedCommit, ...] = ()

    def with_commit(self, found: EvaluatedCommit) -> EvaluationLog:
        """The log with one more commit; an earlier evaluation of the same commit on the same range is replaced."""
        others = [one for one in self.commits if (one.checkpoint, one.start, one.end) != (found.checkpoint, found.start, found.end)]  # fmt: skip
        return replace(self, commits=(*others, found)[-MOST_EVALUATIONS:])

    def newest(self, start: str, end: str) -> EvaluatedCommit | None:
        """The evaluation of the newest commit on this range."""
        return next((one for one in reversed(self.commits) if (one.start, one.end) == (start, end)), None)

    @classmethod
    def read(cls, run_dir: str | Path) -> EvaluationLog:
        """The log of a run, a local folder or a bucket; an empty one where none is.

        Raises :class:`TornCheckpoint` for a damaged one, and :class:`~transforms.errors.StorageError`.
        """
        storage = Storage(str(run_dir))
        place = f"{storage.root}/{_NAME}"
        try:
            content = storage.read_bytes(place)
        except MissingFile:
            return cls()
        if len(content) > _MOST_BYTES:
            raise TornCheckpoint("the evaluations of a run must be a short document", where=place, value=f"over {_MOST_BYTES:,} bytes")  # fmt: skip
        found = OPEN.read(cls, DocumentField(parse_json(content, place), place))
        if found.format != _FORMAT:
            raise TornCheckpoint("the evaluations of a run must have a known format", where=place, value=found.format[:80], allowed=_FORMAT)  # fmt: skip
        return found

    def write(self, run_dir: str | Path) -> None:
        """Replace the log of a run. Raises :class:`~transforms.errors.StorageError`."""
        storage = Storage(str(run_dir))
        storage.write_atomic(f"{storage.root}/{_NAME}", canonical_json(document_of(self)))
