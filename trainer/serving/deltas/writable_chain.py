"""What writes links to a chain: the interface of folders and buckets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainer.checkpoints.local_run import TEMPORARY, delete
from trainer.checkpoints.run_files import RunFiles
from trainer.serving.deltas.chain import Link
from trainer.serving.deltas.link_manifest import LinkManifest, link_hash
from trainer.serving.deltas.row_state import RowState


@dataclass(frozen=True, slots=True)
class WrittenLink:
    """A link in local folders, before it appears in its chain.

    Attributes:
        folder: with the files of its arrays.
        rows: the folder with the files of the rows after it.
        manifest, state: of the link and of these rows.
    """

    folder: Path
    rows: Path
    manifest: LinkManifest
    state: RowState

    @property
    def hash(self) -> str:
        """Of the link."""
        return link_hash(self.manifest.to_bytes())


class WritableChain(Protocol):
    """A chain to which this process may add links."""

    @property
    def place(self) -> str:
        """The chain as screens and errors show it."""

    @property
    def files(self) -> RunFiles:
        """Its files."""

    @property
    def folder(self) -> Path:
        """The local folder in which a link is written before it appears."""

    def newest(self, known: Link | None = None) -> Link | None:
        """The newest link, which is whole by the manifests of the chain; None for an empty chain.

        ``known``: the newest link of the last call.
        """

    def check_newest(self, newest: Link | None) -> None:
        """Raise :class:`~trainer.errors.LinkTaken` if another process has added a link after this one."""

    def remove_leftovers(self, newest: Link | None) -> None:
        """Remove what killed exports have left, and the rows of all links but the newest."""

    def publish(self, link: WrittenLink, before: Link | None, go_on: Callable[[], None]) -> Link:
        """Add a link, whole or not at all.

        Args:
            before: the newest link.
            go_on: called now and then; what it raises ends the publication.

        Raises :class:`~trainer.errors.LinkTaken` if another process has added a link after ``before``.
        """


def remove_unfinished(folder: Path) -> None:
    """Remove the unfinished links of killed exports."""
    for path in folder.glob(f"{TEMPORARY}*"):
        delete(path)
