"""Compare what two runs trained: weights, optimizer slots, histories and counters, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from trainer.checkpoints.checkpoint import read_newest
from trainer.checkpoints.read import Checkpoint
from trainer.errors import TornCheckpoint

#: Members of a commit that do not depend on how its epochs ended.
_MEMBERS = ("history", "ledger", "step", "position", "identity", "head")
#: Arrays of an epoch that is not finished.
_UNFINISHED = "predictions/"


def run_differences(run_dir: str | Path, other: str | Path) -> tuple[str, ...]:
    """The arrays and members in which the newest commits of two runs differ; none if they trained the same.

    Raises :class:`TornCheckpoint` for a run without an intact commit.
    """
    one, two = _newest(run_dir), _newest(other)
    names = sorted(name for name in {*one.arrays, *two.arrays} if not name.startswith(_UNFINISHED))
    arrays = (name for name in names if not _is_same_array(one, two, name))
    return (*arrays, *(name for name in _MEMBERS if _member(one, name) != _member(two, name)))


def _member(checkpoint: Checkpoint, name: str) -> object:
    document = checkpoint.document
    assert isinstance(document, Mapping)  # every reader of checkpoints requires it
    return trained_history(document[name]) if name == "history" and name in document else document.get(name)


def trained_history(epochs: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """The epochs of a commit without the names of their files of batches, on which nothing that is trained depends."""
    return [{key: value for key, value in one.items() if key != "batch_file"} for one in epochs]


def _is_same_array(one: Checkpoint, two: Checkpoint, name: str) -> bool:
    a, b = one.arrays.get(name), two.arrays.get(name)
    if a is None or b is None:
        return False
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _newest(run_dir: str | Path) -> Checkpoint:
    skipped: list[str] = []
    found = read_newest(run_dir, on_skip=skipped.append)
    if found is None:
        raise TornCheckpoint(
            "a run must have an intact checkpoint", where=str(run_dir), value=skipped[0] if skipped else "none"
        )
    return found
