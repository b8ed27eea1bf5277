"""Measure and remove the files of a table that was imported into the home."""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from pipelines.outputs.publication import ImportLedger
from transforms.errors import Busy, InputError
from warehouse.storage.errors import translated_os_errors

_TRASH = ".dropped-"


@dataclass(frozen=True, slots=True)
class ImportedFiles:
    """Number, size in bytes and folders of the files of one imported table."""

    folders: tuple[str, ...]
    files: int
    size_bytes: int


def imported_files(home: str, table: str, root: str) -> ImportedFiles | None:
    """The files that :func:`remove_imported` removes; None for a table outside the home."""
    folders = _folders(home, table)
    if os.path.realpath(root) != os.path.realpath(folders[0]) or Path(folders[0]).is_symlink():
        return None
    there = [folder for folder in folders if Path(folder).is_dir()]
    sizes = [path.lstat().st_size for folder in there for path in Path(folder).rglob("*") if not path.is_dir()]
    return ImportedFiles(tuple(there), len(sizes), sum(sizes))


def remove_imported(home: str, table: str) -> None:
    """Remove the files, journals and reject files of a dropped table.

    The table's folder is renamed first, which makes the journals invalid. After a crash the next removal deletes the
    rest. Raises :class:`Busy` while an import runs, and :class:`~transforms.errors.StorageError`.
    """
    root, journals, rejects = map(Path, _folders(home, table))
    if any(path.is_symlink() for path in (root.parent, root, journals, rejects.parent, rejects)):
        raise InputError("a removed folder must not be a symbolic link", where=str(root),
                         next_step="remove the link and its target by hand")  # fmt: skip
    ledger = ImportLedger(str(root))
    with translated_os_errors(str(root), "delete"):
        if root.is_dir():
            with ledger.locked():
                os.replace(root, root.parent / f"{_TRASH}{uuid.uuid4().hex}")
        for folder in (journals, rejects, *root.parent.glob(f"{_TRASH}*")):
            if folder.is_dir() and not folder.is_symlink():
                shutil.rmtree(folder)


def refuse_running_import(home: str, table: str) -> None:
    """Raise :class:`Busy` while an import into this table's folder of the home runs or is not finished."""
    root = _folders(home, table)[0]
    ledger = ImportLedger(root)
    if not ledger.folder.is_dir():
        return
    with ledger.locked():
        pending = sorted(ledger.folder.glob("*.pending.json"))
    if pending:
        raise Busy("an import into a table must be finished before the table is dropped", where=root,
                   value=str(pending[0]), next_step="run the same import again, which finishes it")  # fmt: skip


def _folders(home: str, table: str) -> tuple[str, str, str]:
    tables = Path(home) / "tables"
    return str(tables / table), str(tables / f"{table}.imports"), str(Path(home) / "rejects" / table)
