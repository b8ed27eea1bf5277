"""Checkpoints: a directory that is either wholly there and provably intact, or not there.

Written beside its place (``.tmp-…``), every file synced, then ``manifest.json`` with the size and SHA-256 of every file,
then renamed into ``checkpoints/epoch-NNNNNN`` and the parent synced. Whatever moment a process dies at, the newest
checkpoint that verifies is the one before or the one after. A checkpoint is one JSON document (``state.json``) and named
numpy arrays; equal content gives equal bytes in every file, the manifest included. Nothing is pickled.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer.errors import CheckpointNotWritten, TornCheckpoint

Array = np.ndarray[Any, np.dtype[Any]]

FORMAT = "headrace.checkpoint/1"
_MANIFEST = "manifest.json"
_STATE = "state.json"
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Checkpoint:
    """What was saved after ``epochs_done`` epochs, verified byte by byte. ``path`` is its directory."""

    path: Path
    epochs_done: int
    document: Mapping[str, Any]
    arrays: Mapping[str, Array]


def checkpoints_dir(run_dir: Path) -> Path:
    """Where a run keeps its checkpoints."""
    return run_dir / "checkpoints"


def write_checkpoint(
    run_dir: Path, epochs_done: int, document: Mapping[str, Any], arrays: Mapping[str, Array], *, keep: int
) -> Path:
    """Make one checkpoint durable, then delete all but the newest ``keep``. Returns its directory.

    Raises :class:`CheckpointNotWritten` (disk full, permission); earlier checkpoints are untouched then.
    """
    parent = checkpoints_dir(run_dir)
    place = parent / _name(epochs_done)
    temporary = parent / f".tmp-{place.name}-{os.getpid()}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        _write_files(temporary, document, arrays)
        _publish(temporary, place)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _not_written(place, error) from error
    # A run that resumed below torn checkpoints has overtaken them.
    _remove([path for path in _newest_first(parent) if _epochs_of(path) > epochs_done])
    _remove(_newest_first(parent)[keep:])
    return place


def _name(epochs_done: int) -> str:
    return f"epoch-{epochs_done:06d}"


def _write_files(folder: Path, document: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    names = {name: f"array-{k:04d}.npy" for k, name in enumerate(arrays)}
    state = json.dumps(document, indent=1, sort_keys=True, allow_nan=False).encode()
    files = {_STATE: _write_synced(folder / _STATE, lambda file: file.write(state))}
    for name, file_name in names.items():
        files[file_name] = _write_synced(folder / file_name, _saver(arrays[name]))
    manifest = {"format": FORMAT, "files": files, "arrays": names}
    text = json.dumps(manifest, indent=1, sort_keys=True).encode()
    _write_synced(folder / _MANIFEST, lambda file: file.write(text))
    _sync_directory(folder)


def _saver(array: Array) -> Callable[[_HashedFile], object]:
    return lambda file: np.save(file, array, allow_pickle=False)


class _HashedFile:
    """The write side of a file, hashing what passes. Only what ``np.save`` needs of one."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.sha256 = hashlib.sha256()
        self.size_bytes = 0

    def write(self, data: bytes) -> int:
        view = memoryview(data).cast("B")
        self.sha256.update(view)
        self.size_bytes += len(view)
        written = 0
        while written < len(view):
            written += os.write(self._descriptor, view[written:])
        return written


def _write_synced(path: Path, save: Callable[[_HashedFile], object]) -> dict[str, Any]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        file = _HashedFile(descriptor)
        save(file)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return {"size_bytes": file.size_bytes, "sha256": file.sha256.hexdigest()}


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _publish(temporary: Path, place: Path) -> None:
    """Rename into place. Something already there is a torn checkpoint of this epoch: it makes room."""
    if place.exists():
        replaced = place.with_name(f".tmp-replaced-{place.name}-{os.getpid()}")
        os.rename(place, replaced)
        os.rename(temporary, place)
        shutil.rmtree(replaced)
    else:
        os.rename(temporary, place)
    _sync_directory(place.parent)


def _not_written(place: Path, error: OSError) -> CheckpointNotWritten:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return CheckpointNotWritten(
        "the disk is full: a checkpoint was not written" if full else "a checkpoint could not be written",
        where=str(place),
        value=error.strerror,
        next_step="make room" * full + "mend the run directory" * (not full) + ", then run the same command again: it "
        "goes on from the checkpoint before",
    )


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        # Renamed first, so that a half deleted checkpoint is never found under its name.
        doomed = path.with_name(f".tmp-old-{path.name}-{os.getpid()}")
        os.rename(path, doomed)
        shutil.rmtree(doomed)


def _newest_first(parent: Path) -> list[Path]:
    return sorted((path for path in parent.glob("epoch-*") if path.is_dir()), reverse=True)


def epochs_committed(run_dir: Path) -> int:
    """How many epochs the newest checkpoint holds, by its name alone; 0 where there is none. For watching a run."""
    newest = _newest_first(checkpoints_dir(run_dir))[:1]
    return _epochs_of(newest[0]) if newest else 0


def _epochs_of(path: Path) -> int:
    return int(path.name.removeprefix("epoch-"))


def remove_leftovers(run_dir: Path) -> None:
    """Delete what a killed process left half written. Only under the run's lock."""
    for path in checkpoints_dir(run_dir).glob(".tmp-*"):
        shutil.rmtree(path)


def read_newest(run_dir: Path, *, on_skip: Callable[[str], None]) -> Checkpoint | None:
    """The newest intact checkpoint of a run, or None if there is none at all.

    ``on_skip`` is told of each torn one passed over, and why. Raises :class:`TornCheckpoint` if there are checkpoints
    and not one is intact: going on would silently begin anew.
    """
    reasons = []
    for path in _newest_first(checkpoints_dir(run_dir)):
        try:
            return read_checkpoint(path)
        except TornCheckpoint as error:
            reasons.append(f"{path.name}: {error.what} ({error.where})")
            on_skip(reasons[-1])
    if reasons:
        raise TornCheckpoint(
            "no checkpoint of this run is intact",
            where=str(checkpoints_dir(run_dir)),
            value="; ".join(reasons),
            next_step="restore the directory from a backup, or train anew in another run directory",
        )
    return None


def read_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint and verify every byte. Raises :class:`TornCheckpoint` naming the file and what is wrong."""
    manifest = _read_json(path / _MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise TornCheckpoint("not a checkpoint manifest of this version", where=str(path / _MANIFEST), allowed=FORMAT)
    for name, expected in manifest["files"].items():
        _verify(path / name, expected)
    arrays = {name: np.load(path / file_name, allow_pickle=False) for name, file_name in manifest["arrays"].items()}
    document = _read_json(path / _STATE)
    return Checkpoint(path, _epochs_of(path), document, arrays)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise TornCheckpoint("a file is missing", where=str(path)) from error
    except ValueError as error:
        raise TornCheckpoint("a file is not the JSON it should be", where=str(path)) from error


def _verify(path: Path, expected: Mapping[str, Any]) -> None:
    if not path.is_file():
        raise TornCheckpoint("a file is missing", where=str(path))
    size_bytes = path.stat().st_size
    if size_bytes != expected["size_bytes"]:
        raise TornCheckpoint("a file has another size than the manifest says", where=str(path), value=size_bytes,
                             allowed=str(expected["size_bytes"]))  # fmt: skip
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            sha256.update(block)
    if sha256.hexdigest() != expected["sha256"]:
        raise TornCheckpoint("a file's bytes are not what the manifest says", where=str(path), value=sha256.hexdigest(),
                             allowed=expected["sha256"])  # fmt: skip
