"""The files of batches that a training reads and writes in the home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.cli.options.session import home_folder

if TYPE_CHECKING:
    from warehouse.files.batch_files.folder import BatchFolder


def open_batch_files(most_bytes: int, home: str) -> BatchFolder | None:
    """The folder of files of at most so many bytes in all; None for 0.

    Raises :class:`InputError` for a home in a bucket: files are mapped, and to download them for each pass takes longer than to read memos.
    """
    if not most_bytes:
        return None
    from warehouse.files.batch_files.folder import BatchFolder

    return BatchFolder(home_folder(home, "--batch-files, whose files are mapped"), most_bytes)
