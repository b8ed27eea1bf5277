"""Atomic checkpoints: a directory with a JSON document (``state.json``) and named numpy arrays.

A checkpoint is written to ``.tmp-…``, every file synced, then ``manifest.json`` (:mod:`trainer.checkpoints.manifest`) with
the size and digest of every file and of itself, then renamed to ``checkpoints/epoch-NNNNNN`` and the parent synced. After
a crash at any instruction the newest checkpoint that verifies is the one before or the one after. Equal content gives
equal bytes in every file. Nothing is pickled. Files are untrusted: only verified bytes are used.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from trainer.checkpoints.manifest import (
    MANIFEST,
    STATE,
    CheckpointFile,
    Manifest,
    array_file,
    canonical_json,
    parse_json,
    purpose_digest,
)
from trainer.checkpoints.npy_bytes import array_from_npy, check_savable
from trainer.checkpoints.parted_arrays import PartedArrays
from trainer.errors import CheckpointNotWritten, TornCheckpoint
from transforms.errors import StorageError, listed
from warehouse.storage.durable_files import sync_path, write_new_file

Array = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")

_NAME = re.compile("epoch-([0-9]{6,18})")
#: Errors of a file that is absent, of another kind or damaged on its disk.
_TORN_ERRNOS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EIO, errno.ENXIO})


@dataclass(frozen=True)
class Checkpoint:
    """The verified content of a checkpoint after ``epochs_done`` epochs; ``path`` is its directory."""

    path: Path
    epochs_done: int
    document: object
    arrays: Mapping[str, Array]


def checkpoints_dir(run_dir: Path) -> Path:
    """The folder of a run's checkpoints."""
    return run_dir / "checkpoints"


def write_checkpoint(
    run_dir: Path,
    epochs_done: int,
    document: Mapping[str, Any],
    arrays: Mapping[str, Array],
    parted: Sequence[PartedArrays] = (),
    *,
    keep: int,
) -> Path:
    """Write one checkpoint durably, then delete all but the newest ``keep``. Returns its directory.

    ``parted``: further arrays, which come in parts. Raises :class:`CheckpointNotWritten` (disk full, permission); earlier checkpoints are unchanged then.
    """
    parent = checkpoints_dir(run_dir)
    place = parent / _name(epochs_done)
    temporary = parent / f".tmp-{place.name}-{os.getpid()}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        _write_files(temporary, epochs_done, document, arrays, parted)
        _publish(temporary, place)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _not_written(place, error) from error
    # Torn checkpoints of later epochs, which the run passed again.
    _remove([path for path in _newest_first(parent) if _epochs_of(path) > epochs_done])
    _remove(_newest_first(parent)[keep:])
    return place


def _name(epochs_done: int) -> str:
    return f"epoch-{epochs_done:06d}"


def _write_files(
    folder: Path,
    epochs_done: int,
    document: Mapping[str, Any],
    arrays: Mapping[str, Array],
    parted: Sequence[PartedArrays],
) -> None:
    text = canonical_json(document)
    state = _write_hashed(folder / STATE, purpose_digest("state"), lambda file: file.write(text))
    files = tuple(
        (name, _write_hashed(folder / array_file(k), purpose_digest("array", name), _saver(array)))
        for k, (name, array) in enumerate(arrays.items())
    )
    for together in parted:
        files += _write_parted(folder, len(files), together)
    manifest = Manifest(epochs_done, state, files).to_bytes()
    _write_hashed(folder / MANIFEST, hashlib.sha256(), lambda file: file.write(manifest))
    sync_path(folder)


def _saver(array: Array) -> Callable[[_HashedFile], object]:
    check_savable(array)
    return lambda file: np.save(file, array, allow_pickle=False)


def _write_parted(folder: Path, first: int, together: PartedArrays) -> tuple[tuple[str, CheckpointFile], ...]:
    """Write arrays that come in parts into files that are open at the same time."""
    digests = [purpose_digest("array", kind.name) for kind in together.kinds]
    sizes: list[int] = [0] * len(digests)

    def write(k: int, opened: tuple[_HashedFile, ...]) -> None:
        if k == len(digests):
            together.write(opened)
            return
        sizes[k] = write_new_file(
            folder / array_file(first + k),
            lambda file: write(k + 1, (*opened, _HashedFile(file, digests[k]))),
            permissions=0o644,
        )

    write(0, ())
    return tuple(
        (kind.name, CheckpointFile(size, digest.hexdigest()))
        for kind, size, digest in zip(together.kinds, sizes, digests, strict=True)
    )


class _HashedFile:
    """A file for ``np.save`` that hashes the written bytes."""

    def __init__(self, file: IO[bytes], sha256: hashlib._Hash) -> None:
        self._file, self._sha256 = file, sha256

    def write(self, data: bytes) -> int:
        view = memoryview(data).cast("B")
        self._sha256.update(view)
        return self._file.write(view)


def _write_hashed(path: Path, sha256: hashlib._Hash, save: Callable[[_HashedFile], object]) -> CheckpointFile:
    size_bytes = write_new_file(path, lambda file: save(_HashedFile(file, sha256)), permissions=0o644)
    return CheckpointFile(size_bytes, sha256.hexdigest())


def _publish(temporary: Path, place: Path) -> None:
    """Rename into place. An existing directory there is a torn checkpoint of this epoch and is deleted."""
    if place.exists():
        replaced = place.with_name(f".tmp-replaced-{place.name}-{os.getpid()}")
        os.rename(place, replaced)
        os.rename(temporary, place)
        _delete(replaced)
    else:
        os.rename(temporary, place)
    sync_path(place.parent)


def _not_written(place: Path, error: OSError) -> CheckpointNotWritten:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return CheckpointNotWritten(
        "the disk is full: a checkpoint was not written" if full else "a checkpoint could not be written",
        where=str(place),
        value=error.strerror,
        next_step=f"{'free disk space' if full else 'fix the run directory'}, then run the same command again: it "
        "continues from the previous checkpoint",
    )


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        # Renamed first, so that a partly deleted checkpoint is never found under its name.
        doomed = path.with_name(f".tmp-old-{path.name}-{os.getpid()}")
        os.rename(path, doomed)
        _delete(doomed)


def _delete(path: Path) -> None:
    """Delete a folder with its content, a file, or a symbolic link without its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _newest_first(parent: Path) -> list[Path]:
    found = [path for path in parent.glob("epoch-*") if path.is_dir() and _is_checkpoint_name(path.name)]
    return sorted(found, key=_epochs_of, reverse=True)


def _is_checkpoint_name(name: str) -> bool:
    matched = _NAME.fullmatch(name)
    return matched is not None and _name(int(matched[1])) == name


def epochs_committed(run_dir: Path) -> int:
    """The epochs of the newest checkpoint by its name, or 0, for watching a run."""
    newest = _newest_first(checkpoints_dir(run_dir))[:1]
    return _epochs_of(newest[0]) if newest else 0


def _epochs_of(path: Path) -> int:
    return int(path.name.removeprefix("epoch-"))


def remove_leftovers(run_dir: Path) -> None:
    """Delete the unfinished checkpoints of a killed process. The caller holds the run's lock."""
    for path in checkpoints_dir(run_dir).glob(".tmp-*"):
        _delete(path)


def read_newest(run_dir: Path, *, on_skip: Callable[[str], None]) -> Checkpoint | None:
    """The newest intact checkpoint of a run: see :func:`newest_intact`."""
    return newest_intact(run_dir, read_checkpoint, on_skip=on_skip)


def newest_intact(run_dir: Path, read: Callable[[Path], T], *, on_skip: Callable[[str], None]) -> T | None:
    """The result of ``read`` for the newest checkpoint that is not torn; None if the run has none.

    ``on_skip`` is called with the file and the reason for each torn checkpoint. Raises :class:`TornCheckpoint` if all
    checkpoints are torn: training from the beginning would discard their training.
    """
    parent = checkpoints_dir(run_dir)
    reasons = []
    for path in _newest_first(parent):
        try:
            return read(path)
        except TornCheckpoint as error:
            reasons.append(f"{path.name}: {error.what} ({error.where})")
            on_skip(reasons[-1])
    reasons += [f"{path.name}: not the folder of a checkpoint" for path in _strangers(parent)]
    if reasons:
        raise TornCheckpoint(
            "a run must have an intact checkpoint",
            where=str(parent),
            value=listed(reasons),
            next_step="restore the directory from a backup, or train from the beginning in another run directory",
        )
    return None


def _strangers(parent: Path) -> list[Path]:
    """Entries with a name similar to a checkpoint's, such as a damaged name."""
    found = [path for path in parent.glob("*") if not path.name.startswith(".")]
    return sorted(path for path in found if not (path.is_dir() and _is_checkpoint_name(path.name)))


def read_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint and verify every byte. Raises :class:`TornCheckpoint` naming the file and what is wrong.

    Raises :class:`OtherFormat` for an intact checkpoint of another format, :class:`StorageError` if a file cannot be
    read.
    """
    manifest = Manifest.from_bytes(_read_file(path / MANIFEST), str(path / MANIFEST))
    if _name(manifest.epochs_done) != path.name:
        raise TornCheckpoint("a checkpoint must be in the folder of its epoch", where=str(path),
                             value=path.name, allowed=_name(manifest.epochs_done))  # fmt: skip
    arrays = {}
    for k, (name, stored) in enumerate(manifest.arrays):
        place = path / array_file(k)
        arrays[name] = array_from_npy(
            _read_verified(place, stored, purpose_digest("array", name, manifest.format)), str(place)
        )
    state = _read_verified(path / STATE, manifest.state, purpose_digest("state", form=manifest.format))
    return Checkpoint(path, manifest.epochs_done, parse_json(state, str(path / STATE)), arrays)


def _read_verified(path: Path, stored: CheckpointFile, sha256: hashlib._Hash) -> bytes:
    """The bytes of a file, verified with the manifest."""
    data = _read_file(path, expected_bytes=stored.size_bytes)
    sha256.update(data)
    if sha256.hexdigest() != stored.sha256:
        raise TornCheckpoint("a file must have the bytes that the manifest records, got others", where=str(path),
                             value=sha256.hexdigest(), allowed=stored.sha256)  # fmt: skip
    return data


def _read_file(path: Path, *, expected_bytes: int | None = None) -> bytes:
    """A file's bytes. A file of another size than ``expected_bytes`` is not read."""
    try:
        with open(path, "rb", buffering=0, opener=_open_now) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise TornCheckpoint("a checkpoint must consist of regular files", where=str(path))
            if expected_bytes is not None and found.st_size != expected_bytes:
                raise TornCheckpoint("a file must have the size that the manifest records, got another size",
                                     where=str(path), value=found.st_size, allowed=str(expected_bytes))  # fmt: skip
            return file.readall()
    except FileNotFoundError as error:
        raise TornCheckpoint("a file of a checkpoint must exist", where=str(path)) from error
    except OSError as error:
        if error.errno in _TORN_ERRNOS:
            raise TornCheckpoint("a file cannot be read", where=str(path), value=error.strerror) from error
        raise StorageError("a checkpoint cannot be read", where=str(path), value=error.strerror,
                           next_step="make the file readable, then run the same command again") from error  # fmt: skip


def _open_now(path: str, flags: int) -> int:
    """Open a file without blocking on a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)
