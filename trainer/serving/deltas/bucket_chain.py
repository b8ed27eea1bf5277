"""A chain in a bucket: a link appears when its manifest is created, after all other objects.

Several processes may export to a chain, such as a controller that does not know yet that another one has taken its place. The name of a
manifest is the number of its link, and it is created unless it exists: one process writes the link, the others get an error and go on after
that link. The folder of a link's files is named by its hash, so processes that write different links do not meet, and those that write the
same link write the same bytes. A folder is removed once its number belongs to another link: before that, its process may still complete it.
"""

from __future__ import annotations

import io
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from trainer.checkpoints.bucket_run import BucketRun
from trainer.errors import CheckpointNotWritten, LinkTaken, TornCheckpoint
from trainer.serving.deltas.chain import Link
from trainer.serving.deltas.chain_files import (
    STATES,
    ChainReader,
    LinkPlace,
    files_folder,
    number_and_hash,
    object_name,
    read_link,
    state_folder,
)
from trainer.serving.deltas.row_state import STATE
from trainer.serving.deltas.writable_chain import WrittenLink, remove_unfinished
from warehouse.storage.storage import Storage

_UPLOADS_AT_ONCE = 8
#: Between two looks whether uploads are still wanted.
_LOOK_SECS = 0.2


class BucketChain:
    """The chain at ``location``; see :class:`trainer.serving.deltas.writable_chain.WritableChain`.

    Args:
        location: ``gs://bucket/path``.
        folder: the local folder of a link on its way, which this process has locked.
    """

    def __init__(self, location: str, folder: Path) -> None:
        self.folder, self.files = folder, BucketRun(location, "")
        self._storage, self._reader = Storage(location), ChainReader(location)

    @property
    def place(self) -> str:
        """The location without settings of the object store."""
        return self._storage.root

    def newest(self, known: Link | None = None) -> Link | None:
        """The newest link, which another process may have written."""
        return self._reader.newest()

    def check_newest(self, newest: Link | None) -> None:
        """Raise :class:`LinkTaken` unless the chain ends with ``newest``."""
        found = self._reader.places()[-1:]
        wanted = -1 if newest is None else newest.manifest.number
        if [one.number for one in found] != ([] if newest is None else [wanted]):
            raise self._taken(wanted + 1, found[0].name if found else "no link")

    def _taken(self, number: int, found: str) -> LinkTaken:
        return LinkTaken(f"link {number} must be the next one of its chain, got a chain that another process has changed", where=self.place,
                         value=found, next_step="run the same command again: it goes on after the newest link; let one process at a time export to a chain")  # fmt: skip

    def remove_leftovers(self, newest: Link | None) -> None:
        """Remove folders of links that lost their number to another one, and rows that no next link is computed from."""
        remove_unfinished(self.folder)
        found, last = self.files.entries(""), -1 if newest is None else newest.manifest.number
        of_files = {name: named for name in found.folders if (named := number_and_hash(name)) is not None}
        pending = {state_folder(digest) for number, digest in of_files.values() if number > last}
        kept = pending | ({state_folder(newest.hash)} if newest is not None else set())
        for name in found.folders:
            if name.startswith(STATES) and name not in kept:
                self.files.remove(f"{name}/{STATE}")  # without it the others are not read
                self.files.remove(name)
        taken = [name for name, (number, _) in of_files.items() if number <= last]
        for name in set(taken) - self._files_of_links(taken, found.sizes):
            self.files.remove(name)

    def _files_of_links(self, folders: Sequence[str], objects: Iterable[str]) -> set[str]:
        """The folders among these that links have. A manifest is read where several folders have its number."""
        numbers = Counter(int(name.partition("-")[0]) for name in folders)
        kept = set()
        for name in folders:
            number = int(name.partition("-")[0])
            manifest = object_name(number)
            if manifest in objects and (
                numbers[number] == 1 or name == read_link(self.files, LinkPlace(number, manifest)).folder
            ):
                kept.add(name)
        return kept

    def publish(self, link: WrittenLink, before: Link | None, go_on: Callable[[], None]) -> Link:
        """Upload the files, then the rows, then the manifest."""
        number, rows = link.manifest.number, state_folder(link.hash)
        (link.rows / STATE).write_bytes(link.state.to_bytes())
        arrays = sorted(path.name for path in link.rows.iterdir() if path.name != STATE)
        self._upload(link.folder, sorted(link.manifest.array_files()), files_folder(number, link.hash), go_on)
        self._upload(link.rows, arrays, rows, go_on)
        self._upload(link.rows, [STATE], rows, go_on)
        self.check_newest(before)
        is_new = self.files.create("", object_name(number), link.manifest.to_bytes())
        made = read_link(self.files, LinkPlace(number, object_name(number)))
        if made.hash != link.hash:
            raise self._taken(number, made.manifest.name) if not is_new else _changed(made.place)
        return made

    def _upload(self, source: Path, names: Sequence[str], folder: str, go_on: Callable[[], None]) -> None:
        """Upload files of a local folder, several at a time."""
        there, stopped = self.files.entries(folder).sizes, threading.Event()
        with ThreadPoolExecutor(_UPLOADS_AT_ONCE) as pool:
            pending: set[Future[None]] = {
                pool.submit(self._put, source / name, f"{folder}/{name}", name in there, stopped) for name in names
            }
            try:
                while pending:
                    done, pending = wait(pending, _LOOK_SECS, FIRST_COMPLETED)
                    for one in done:
                        one.result()
                    go_on()
            except BaseException:
                stopped.set()
                for one in pending:
                    one.cancel()
                raise

    def _put(self, source: Path, path: str, is_there: bool, stopped: threading.Event) -> None:
        """Upload a file unless a killed process has; what is there is compared with it."""
        place = self.files.place(path)
        with _Stoppable(source, stopped) as file:
            if not is_there and self._storage.upload(place, file):
                return
            if self._has(path, file):
                return
            self._storage.delete(place)
            if not self._storage.upload(place, file):
                raise _changed(place)

    def _has(self, path: str, file: _Stoppable) -> bool:
        """Whether an object has the bytes of a file."""
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(0)
        try:
            return all(file.read(len(chunk)) == chunk for chunk in self.files.chunks(path, size_bytes))
        except TornCheckpoint:  # it has another size, or disappeared
            return False


def _changed(place: str) -> CheckpointNotWritten:
    return CheckpointNotWritten("an object of a link must have the bytes that were written, got others", where=place,
                                next_step="let nothing but exports write to the chain, then run the same command again")  # fmt: skip


class _NotWanted(Exception):
    """An upload that is not wanted any more."""


class _Stoppable(io.FileIO):
    """A file whose reading ends once its upload is not wanted any more."""

    def __init__(self, path: Path, stopped: threading.Event) -> None:
        super().__init__(path, "rb")
        self._stopped = stopped

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes. Raises :class:`_NotWanted`."""
        if self._stopped.is_set():
            raise _NotWanted
        return super().read(-1 if size is None else size)
