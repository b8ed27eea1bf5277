"""A chain in a local folder: a link appears by one rename, after all of its files are synced."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer.checkpoints.local_run import LocalRun, delete
from trainer.serving.deltas.chain import Link
from trainer.serving.deltas.chain_files import STATES, ChainReader, LinkPlace, read_link, state_folder
from trainer.serving.deltas.link_manifest import MANIFEST
from trainer.serving.deltas.row_state import STATE
from trainer.serving.deltas.writable_chain import WrittenLink, remove_unfinished
from warehouse.storage.durable_files import sync_folder, sync_path


@dataclass(frozen=True, slots=True)
class LocalChain:
    """The chain in ``folder``, which this process has locked; see :class:`trainer.serving.deltas.writable_chain.WritableChain`."""

    folder: Path

    @property
    def place(self) -> str:
        """The folder."""
        return str(self.folder)

    @property
    def files(self) -> LocalRun:
        """The files of the folder."""
        return LocalRun(self.folder)

    def newest(self, known: Link | None = None) -> Link | None:
        """The newest link; ``known`` is still the newest, since no other process writes."""
        return known or ChainReader(self.folder).newest()

    def check_newest(self, newest: Link | None) -> None:
        """No other process writes."""

    def remove_leftovers(self, newest: Link | None) -> None:
        """Remove unfinished links, and the rows of all links but the newest."""
        self._remove_leftovers("" if newest is None else newest.hash)

    def _remove_leftovers(self, newest: str) -> None:
        remove_unfinished(self.folder)
        for path in self.folder.glob(f"{STATES}*"):
            if not newest or path.name != state_folder(newest):
                delete(path)

    def publish(self, link: WrittenLink, before: Link | None, go_on: Callable[[], None]) -> Link:
        """The rows appear, then the link, then the rows of the link before it disappear."""
        (link.folder / MANIFEST).write_bytes(link.manifest.to_bytes())
        sync_folder(link.folder)
        (link.rows / STATE).write_bytes(link.state.to_bytes())
        sync_folder(link.rows)
        os.rename(link.rows, self.folder / state_folder(link.hash))
        sync_path(self.folder)
        os.rename(link.folder, self.folder / link.manifest.name)
        sync_path(self.folder)
        self._remove_leftovers(link.hash)
        return read_link(self.files, LinkPlace(link.manifest.number, f"{link.manifest.name}/{MANIFEST}"))
