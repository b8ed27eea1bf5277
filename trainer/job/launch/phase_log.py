"""The phases that a run has trained: a document in its folder, which says where its command goes on after any end.

Initial training trains the history, and may be stopped and begun again; once it has caught up, caught-up training trains what lands, and
initial training does not come back. The document is replaced as a whole, so that a killed command finds one or the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from trainer.checkpoints.manifest import canonical_json, parse_json
from trainer.errors import TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from transforms.derived_documents import document_of, number, one_of, whole
from warehouse.errors import MissingFile
from warehouse.storage.storage import Storage

#: Of a run, in order.
PHASES = ("initial", "caught_up")
_FORMAT, _NAME = "headrace-phases-1", "phases.json"
_MOST_BYTES = 1 << 22
_COUNT = whole(most=1 << 62)


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One training command of a phase that has ended.

    Attributes:
        phase: "initial" or "caught_up".
        hosts: processes that trained.
        servers: parameter servers; 0 for none.
        events: that it trained.
        secs: that it took.
    """

    phase: Annotated[str, one_of(*PHASES)]
    hosts: Annotated[int, _COUNT]
    servers: Annotated[int, _COUNT]
    events: Annotated[int, _COUNT]
    secs: Annotated[float, number(0.0)]

    def has_caught_up(self, most_secs: float) -> bool:
        """Whether nothing was left to train, or what has landed meanwhile is at most ``most_secs`` old. An empty training takes time, too."""
        return not self.events or self.secs <= most_secs


@dataclass(frozen=True, slots=True)
class PhaseLog:
    """The phases of a run.

    Attributes:
        format: of the document.
        is_caught_up: whether initial training is over.
        runs: commands that have ended, in order.
    """

    format: str = _FORMAT
    is_caught_up: bool = False
    runs: tuple[PhaseRun, ...] = ()

    def with_run(self, run: PhaseRun) -> PhaseLog:
        """This log after another command."""
        return replace(self, runs=(*self.runs, run))

    @classmethod
    def read(cls, run_dir: str | Path) -> PhaseLog:
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
            raise TornCheckpoint(
                "the phases of a run must be a short document", where=place, value=f"over {_MOST_BYTES:,} bytes"
            )
        found = OPEN.read(cls, DocumentField(parse_json(content, place), place))
        if found.format != _FORMAT:
            raise TornCheckpoint(
                "the phases of a run must have a known format",
                where=place,
                value=found.format[:80],
                allowed=_FORMAT,
            )
        return found

    def write(self, run_dir: str | Path) -> None:
        """Replace the log of a run. Raises :class:`~transforms.errors.StorageError`."""
        storage = Storage(str(run_dir))
        storage.write_atomic(f"{storage.root}/{_NAME}", canonical_json(document_of(self)))
