"""Publishing many files as one: a journal first, then the renames, so that a crash at any instruction can be finished.

Beside an output folder ``clicks`` lies ``clicks.imports``::

    staging/<import id>/...        files that are written but not yet part of the table
    <import id>.pending.json       the journal: every staged file and its final place
    <import id>.json               the same, done; it also says which log files the table holds

A journal is written before the first rename. Whoever comes next finds a pending journal and carries it out; without
one, staged files are leftovers and are removed. Files of the table are created once and never written again.
"""

from __future__ import annotations

import fcntl
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
from warehouse.storage.durable_files import make_folders, sync_path
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
    """What was imported into one output folder, and the folder where the next import is staged.

    Local or mounted file systems only: publishing is a rename. Everything but ``imports`` runs under :meth:`locked`.
    """

    def __init__(self, output: str) -> None:
        self.output = Path(os.path.normpath(output))
        self.folder = self.output.with_name(self.output.name + ".imports")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the output for one import. Raises :class:`Busy` when another process holds it."""
        make_folder(self.folder)
        lock = self.folder / "lock"
        with lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy("another process imports into this output", where=str(lock),
                           next_step="wait for it to end, then run the same command again") from None  # fmt: skip
            yield

    def recover(self) -> int:
        """Finish what a killed import had already written in its journal; the number of journals finished."""
        pending = sorted(self.folder.glob(f"*{_PENDING}")) if self.folder.is_dir() else []
        for journal in pending:
            self._carry_out(journal)
        return len(pending)

    def imports(self) -> tuple[Mapping[str, object], ...]:
        """The documents of the finished imports, by import id; none where the table's folder was removed since."""
        if not self.output.is_dir():
            return ()
        journals = sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []
        return tuple(_read_json(journal) for journal in journals)

    def stage(self, import_id: str) -> Path:
        """A fresh staging folder for this import."""
        self.discard(import_id)
        folder = self._staging(import_id)
        make_folder(folder)
        return folder

    def discard(self, import_id: str) -> None:
        """Remove what this import staged; the table is as it was. Nothing is removed by way of a link."""
        folder = self._staging(import_id)
        if not any(one.is_symlink() for one in (self.folder, folder.parent, folder)):
            shutil.rmtree(folder, ignore_errors=True)

    def _staging(self, import_id: str) -> Path:
        """The folder of this import. Raises :class:`DataError` for what is no import id, such as ``..``."""
        if not re.fullmatch(r"[0-9a-f]{16}", import_id):
            raise DataError("an import id must be 16 hexadecimal digits", where=str(self.folder), value=import_id,
                            next_step=f"remove {self.folder / import_id}{_PENDING}, which Headrace did not write")  # fmt: skip
        return self.folder / "staging" / import_id

    def publish(self, import_id: str, files: Iterable[StagedFile], document: Mapping[str, object]) -> None:
        """Make every staged file part of the table, and record ``document``. All or, after a crash, on recovery."""
        listed = [[file.staged, file.place] for file in files]
        journal = self.folder / f"{import_id}{_PENDING}"
        write_atomic(journal, json.dumps({**document, "files": listed}, indent=1, sort_keys=True).encode())
        self._carry_out(journal)

    def _carry_out(self, journal: Path) -> None:
        folders = set()
        import_id = journal.name.removesuffix(_PENDING)
        staging = Path(os.path.realpath(self.folder), "staging", self._staging(import_id).name)
        for staged, place in _listed_files(journal):
            source, target = Path(staged), self.output / place
            if not is_inside(place) or staging not in Path(os.path.realpath(source.parent), source.name).parents:
                raise DataError("a journal must move staged files into its table", where=str(journal),
                                value=f"{staged} to {place}", allowed=f"from {staging} to a path in {self.output}",
                                next_step=f"remove {journal} and import the files again")  # fmt: skip
            make_folder(target.parent)
            if source.exists():
                os.replace(source, target)
            elif not target.exists():
                raise DataError("a staged file of an unfinished import is gone", where=staged,
                                next_step=f"remove {journal} and import the files again")  # fmt: skip
            folders.add(target.parent)
        for folder in sorted(folders):
            sync_path(folder)
        os.replace(journal, journal.with_name(journal.name.removesuffix(_PENDING) + ".json"))
        sync_path(self.folder)
        self.discard(import_id)


def write_atomic(path: Path, content: bytes | Writer) -> None:
    """``content`` at ``path``, whole or not at all. Raises :class:`~transforms.errors.StorageError` when the disk is full or refuses."""
    _LOCAL.write_atomic(os.path.abspath(path), content)


def make_folder(folder: Path) -> None:
    """Create ``folder`` and its parents, durably. Raises :class:`~transforms.errors.StorageError`."""
    try:
        make_folders(folder)
    except OSError as error:
        raise storage_error(error, str(folder), "create") from error


def _listed_files(journal: Path) -> list[tuple[str, str]]:
    """The staged files of a journal, and their places below the table's folder."""
    listed = Part(_read_json(journal), f"journal {journal}").fields(("files",), None).at("files")
    pairs = (pair.items(least=2, most=2) for pair in listed.items())
    return [(staged.name(), place.inside_path()) for staged, place in pairs]


def _read_json(path: Path) -> Mapping[str, object]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError("an import's journal cannot be read", where=str(path), value=str(error)) from error
    return cast("Mapping[str, object]", parse_document(content, f"journal {path}").fields((), None).value)
