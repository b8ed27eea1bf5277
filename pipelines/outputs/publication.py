"""Publish many files atomically: a journal, then the renames; after a crash the journal is carried out.

Beside an output folder ``clicks`` lies ``clicks.imports``::

    staging/<import id>/...        files that are written but not yet part of the table
    <import id>.pending.json       the journal: every staged file and its final place
    <import id>.json               the finished journal, which also lists the log files that the table holds

A journal is written before the first rename. The next process carries out a pending journal; without one, staged files
are leftovers and are removed. Files of the table are created once and never written again.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from transforms.documents import Part, parse_document
from transforms.errors import Busy, DataError
from warehouse.storage.durable_files import make_folders, sync_path, sync_paths
from warehouse.storage.errors import storage_error
from warehouse.storage.storage import Storage
from warehouse.storage.stored_file import Writer, is_inside

_PENDING = ".pending.json"
_LOCAL = Storage("/")


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file in the staging folder and its place below the table's folder; ``late`` if its partition had files."""

    staged: str
    place: str
    rows: int
    size_bytes: int
    late: bool


class ImportLedger:
    """The imports of one output folder, and the staging folder of the next one.

    Works on local or mounted file systems only, since publishing is a rename. Every method except ``imports`` requires
    :meth:`locked`.
    """

    def __init__(self, output: str) -> None:
        self.output = Path(os.path.normpath(output))
        self.folder = self.output.with_name(self.output.name + ".imports")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the output for one import. Raises :class:`Busy` while another process has the lock."""
        make_folder(self.folder)
        lock = self.folder / "lock"
        with lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy("the output must not have another import running", where=str(lock),
                           next_step="wait for it to end, then run the same command again") from None  # fmt: skip
            yield

    def recover(self) -> int:
        """Carry out the journals of killed imports; return how many there were."""
        pending = sorted(self.folder.glob(f"*{_PENDING}")) if self.folder.is_dir() else []
        for journal in pending:
            self._carry_out(journal)
        return len(pending)

    def imports(self) -> tuple[Mapping[str, object], ...]:
        """The documents of the finished imports, by import id; none if the table's folder was removed."""
        if not self.output.is_dir():
            return ()
        journals = sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []
        return tuple(_read_json(journal) for journal in journals)

    def stage(self, import_id: str) -> Path:
        """Create an empty staging folder for this import."""
        self.discard(import_id)
        folder = self._staging(import_id)
        make_folder(folder)
        return folder

    def discard(self, import_id: str) -> None:
        """Remove the staged files of this import; the table is unchanged. Symbolic links are not followed."""
        folder = self._staging(import_id)
        if not any(one.is_symlink() for one in (self.folder, folder.parent, folder)):
            shutil.rmtree(folder, ignore_errors=True)

    def _staging(self, import_id: str) -> Path:
        """The staging folder of this import. Raises :class:`DataError` for an invalid import id, such as ``..``."""
        if not re.fullmatch(r"[0-9a-f]{16}", import_id):
            raise DataError("an import id must be 16 hexadecimal digits", where=str(self.folder), value=import_id,
                            next_step=f"remove {self.folder / import_id}{_PENDING}, which Headrace did not write")  # fmt: skip
        return self.folder / "staging" / import_id

    def publish(self, import_id: str, files: Iterable[StagedFile], document: Mapping[str, object]) -> None:
        """Make every staged file part of the table and record ``document``; :meth:`recover` completes it after a crash.

        Raises :class:`~transforms.errors.StorageError` where the disk does not take a staged file.
        """
        listed = [[file.staged, file.place] for file in files]
        staged = [path for path, _ in listed]
        try:
            sync_paths(staged)
            sync_paths({os.path.dirname(path) for path in staged})
        except OSError as error:
            raise storage_error(error, str(error.filename or self.folder), "write") from error
        journal = self.folder / f"{import_id}{_PENDING}"
        write_atomic(journal, json.dumps({**document, "files": listed}, indent=1, sort_keys=True).encode())
        self._carry_out(journal)

    def _carry_out(self, journal: Path) -> None:
        moves = self._moves(journal)
        folders = sorted({target.parent for _, target in moves})
        make_folder(*folders)
        for source, target in moves:
            if source.exists():
                os.replace(source, target)
            elif not target.exists():
                raise DataError("a staged file of an unfinished import must exist", where=str(source),
                                next_step=f"remove {journal} and import the files again")  # fmt: skip
        sync_paths(folders)
        os.replace(journal, journal.with_name(journal.name.removesuffix(_PENDING) + ".json"))
        sync_path(self.folder)
        self.discard(journal.name.removesuffix(_PENDING))

    def _moves(self, journal: Path) -> list[tuple[Path, Path]]:
        """A journal's staged files and their final paths. Raises :class:`DataError` for one that is elsewhere."""
        staging = Path(
            os.path.realpath(self.folder), "staging", self._staging(journal.name.removesuffix(_PENDING)).name
        )
        real_folder = functools.cache(os.path.realpath)
        moves = []
        for staged, place in _listed_files(journal):
            source = Path(staged)
            if not is_inside(place) or staging not in Path(real_folder(source.parent), source.name).parents:
                raise DataError("a journal must move staged files into its table", where=str(journal),
                                value=f"{staged} to {place}", allowed=f"from {staging} to a path in {self.output}",
                                next_step=f"remove {journal} and import the files again")  # fmt: skip
            moves.append((source, self.output / place))
        return moves


def write_staged(staging: Path, place: str, content: bytes) -> str:
    """Stage a file for ``place`` in the table; return its path. :meth:`ImportLedger.publish` puts all files on disk together.

    All lie in one folder, so that many partitions cost no folders. Raises :class:`~transforms.errors.StorageError`.
    """
    path = os.path.abspath(staging / f"table-{place.replace('/', '+')}")
    _LOCAL.write_atomic(path, content, synced=False)
    return path


def write_atomic(path: Path, content: bytes | Writer) -> None:
    """Write ``content`` to ``path`` atomically. Raises :class:`~transforms.errors.StorageError`."""
    _LOCAL.write_atomic(os.path.abspath(path), content)


def write_undurable(path: Path, content: bytes) -> None:
    """:func:`write_atomic` for files that are useless after a power failure, without waiting for the disk."""
    _LOCAL.write_atomic(os.path.abspath(path), content, synced=False)


def make_folder(*folders: Path) -> None:
    """Create folders and their parents, durably. Raises :class:`~transforms.errors.StorageError`."""
    try:
        make_folders(*folders)
    except OSError as error:
        raise storage_error(error, str(error.filename or folders[0]), "create") from error


def _listed_files(journal: Path) -> list[tuple[str, str]]:
    """The staged files of a journal, and their places below the table's folder."""
    listed = Part(_read_json(journal), f"journal {journal}").fields(("files",), None).at("files")
    pairs = (pair.items(least=2, most=2) for pair in listed.items())
    return [(staged.name(), place.inside_path()) for staged, place in pairs]


def _read_json(path: Path) -> Mapping[str, object]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError("an import's journal must be a readable file", where=str(path), value=str(error),
                        next_step="make the file readable, then run the same command again") from error  # fmt: skip
    return cast("Mapping[str, object]", parse_document(content, f"journal {path}").fields((), None).value)
