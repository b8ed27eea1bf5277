"""A small real run with three checkpoints, their contents, and ways to damage their files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.trainer.synthetic import TYPES, Synthetic, config
from trainer.checkpoints.checkpoint import checkpoints_dir, read_checkpoint
from trainer.run.loop import train
from trainer.run.weights.saved_run import SavedRun, read_newest_run, saved_run

EPOCHS = 3


@dataclass(frozen=True)
class SmallRun:
    """``contents``: what every checkpoint holds, by the name of its folder."""

    folder: Path
    contents: dict[str, Any]

    @property
    def newest(self) -> Path:
        """The folder of the newest checkpoint."""
        return checkpoints_dir(self.folder) / f"epoch-{EPOCHS:06d}"

    @property
    def before(self) -> Path:
        """The folder of the checkpoint before the newest."""
        return checkpoints_dir(self.folder) / f"epoch-{EPOCHS - 1:06d}"

    def read(self) -> tuple[SavedRun, list[str]]:
        """What a resumed run would go on with, and what it was passed over."""
        skipped: list[str] = []
        found = read_newest_run(self.folder, on_skip=skipped.append)
        assert found is not None
        assert content(found) == self.contents[found.name], "other weights than those that were saved"
        return found, skipped

    def assert_passed_over(self, part: str) -> None:
        """The newest checkpoint is torn, the reason names ``part``, and the one before is read."""
        found, skipped = self.read()
        assert found.path == str(self.before)
        assert len(skipped) == 1
        assert skipped[0].startswith(self.newest.name)
        assert part in skipped[0]


def small_run(folder: Path) -> SmallRun:
    """Train a model with embeddings, slots, dropout and an uneven ledger for :data:`EPOCHS` epochs."""
    data = Synthetic(EPOCHS, 6, types={name: TYPES[name] for name in ("user", "price")})
    options = {"dim": 2, "bottom_mlp": (), "top_mlp": (2,), "dropout": 0.1, "batch_rows": 64}
    train(data.solution, data.read, config(folder, keep_checkpoints=EPOCHS, **options))
    found = {path.name: content(saved_run(read_checkpoint(path))) for path in checkpoints_dir(folder).iterdir()}
    assert len(found) == EPOCHS
    assert len({str(one) for one in found.values()}) == EPOCHS
    return SmallRun(folder, found)


def content(run: SavedRun) -> Any:
    """All that a resumed run takes over, as values that compare bit by bit."""
    arrays = {name: (str(array.dtype), array.shape, array.tobytes()) for name, array in run.arrays.items()}
    counts = run.counts and (run.counts.fragments, run.counts.uneven.tobytes())
    return run.identity, run.progress, counts, arrays


@contextmanager
def overwritten(path: Path, data: bytes) -> Iterator[None]:
    """The file holds ``data`` until the block ends, then what it held before."""
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)


@contextmanager
def kept(folder: Path, copy: Path) -> Iterator[None]:
    """Whatever the block does to ``folder`` is undone when it ends; ``copy`` is a place beside it."""
    shutil.copytree(folder, copy)
    try:
        yield
    finally:
        shutil.rmtree(folder)
        copy.rename(folder)


def flipped(data: bytes, at: int, bit: int) -> bytes:
    """``data`` with one bit turned over."""
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
