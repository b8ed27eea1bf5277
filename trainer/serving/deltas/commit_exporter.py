"""Each commit of a run becomes a link of a chain while training goes on, in a thread.

One link is written at a time, of the commit that is the newest when it begins: a link that takes longer than an epoch is followed by one
of several epochs. An error delays no training: the next commit is tried again, and so is the same one after a while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainer.checkpoints.held_commits import hold_commit
from trainer.checkpoints.not_written import translated_write_errors
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.run_files import RunFiles, newest_first
from trainer.errors import LinkRefused, LinkTaken, TornCheckpoint
from trainer.serving.deltas.chain import Link
from trainer.serving.deltas.chain_files import ChainPlace
from trainer.serving.deltas.commit_weights import newest_commit
from trainer.serving.deltas.export_links import OnBytes, export_next
from trainer.serving.deltas.link_manifest import FULL
from trainer.serving.deltas.locked_chain import locked_chain
from trainer.serving.deltas.model_digest import model_digest_of
from trainer.serving.deltas.row_state import read_state
from trainer.serving.deltas.row_values import encoding_of
from trainer.serving.deltas.writable_chain import WritableChain
from transforms.errors import HeadraceError
from warehouse.scheduling.backoff import Backoff

#: The waits before the same commit is tried again after an error.
_BACKOFF = Backoff(first_secs=5.0, most_secs=300.0, jitter=0.0)
#: Links of other processes after which a commit is exported at once.
_MOST_TAKEN = 3
#: The folder, of the folder in which commits are held, of a link on its way to a bucket.
STAGING = ".export"


@dataclass(frozen=True, slots=True)
class ExportedChain:
    """What a command has written to a chain.

    Attributes:
        place: of the chain.
        links: that were written.
        newest: the newest link; None for an empty chain.
        problem: why the newest commit is not in the chain; None if it is.
    """

    place: str
    links: int
    newest: Link | None
    problem: Exception | None


class CommitExporter:
    """Writes the commits of a run to a chain: see :func:`exporting`.

    Args:
        files: of the run.
        holds: the folder in which the commit that is read is held.
        chain: that links are added to.
        newest: its newest link.
        quantize: as for :func:`~trainer.serving.deltas.export_links.export_delta`.
        tell: called with a sentence about a full snapshot in place of a delta, an error, and its end.
    """

    def __init__(
        self,
        files: RunFiles,
        holds: Path,
        chain: WritableChain,
        newest: Link | None,
        *,
        quantize: str = "",
        tell: Callable[[str], None] = lambda message: None,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        self._files, self._chain, self._newest, self._tell = files, chain, newest, tell
        self._quantize, self._backoff = quantize, backoff
        self._hold = partial(hold_commit, holds)
        self._links, self._failures = 0, 0
        self._problem: Exception | None = None
        self._on_bytes: OnBytes = lambda done, total: None
        self._wake = threading.Event()
        self._wake.set()  # a chain that lacks the newest commit gets it at once
        self._is_last = self._is_cancelled = False
        self._thread = threading.Thread(target=self._run, name="commit-exporter", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """There may be a new commit. Returns at once; any thread may call it."""
        self._wake.set()

    def finish(self, on_bytes: OnBytes = lambda done, total: None) -> ExportedChain:
        """Write the newest commit, if the chain lacks it, and end. ``on_bytes``: see :func:`export_full`."""
        self._on_bytes, self._is_last = on_bytes, True
        self._wake.set()
        self._thread.join()
        return ExportedChain(self._chain.place, self._links, self._newest, self._problem)

    def cancel(self) -> None:
        """End, without the link that is being written."""
        self._is_cancelled = self._is_last = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait(self._backoff.wait_secs(self._failures, 0.0) if self._failures else None)
            self._wake.clear()
            is_last = self._is_last  # read before the commit is
            if not self._is_cancelled:
                self._export()
            if is_last:
                return

    def _export(self) -> None:
        try:
            link = self._export_after_newest()
        except _Cancelled:
            return
        except Exception as error:  # whatever it is, training goes on
            if self._problem is None or str(error) != str(self._problem):
                self._tell(f"a link of {self._chain.place} was not written, training goes on: {error}")
            self._problem, self._failures = error, self._failures + 1
            return
        if self._problem is not None:
            self._tell(f"links of {self._chain.place} are written again")
        self._problem, self._failures = None, 0
        if link is not None:
            if self._newest is not None and link.manifest.kind == FULL:
                self._tell(
                    f"{self._chain.place}/{link.manifest.name} is a full snapshot: no delta could be computed from {self._newest.manifest.name}"
                )
            self._newest, self._links = link, self._links + 1

    def _export_after_newest(self) -> Link | None:
        """The new link; another process may have added links since the last one."""
        for _ in range(_MOST_TAKEN):
            with suppress(LinkTaken):
                return self._export_newest()
        return self._export_newest()

    def _export_newest(self) -> Link | None:
        self._newest = self._chain.newest(self._newest)
        return export_next(
            self._files, self._chain, self._newest, quantize=self._quantize, on_bytes=self._count, hold=self._hold
        )

    def _count(self, done: int, total: int) -> None:
        if self._is_cancelled:
            raise _Cancelled
        self._on_bytes(done, total)


class _Cancelled(Exception):
    """The link that is being written is not wanted any more."""


@contextmanager
def exporting(
    run_dir: str,
    chain: ChainPlace,
    *,
    holds: Path,
    quantize: str = "",
    tell: Callable[[str], None] = lambda message: None,
) -> Iterator[CommitExporter]:
    """The exporter of a run for the time of a training, which calls :meth:`CommitExporter.finish` at its end.

    After an error of training the newest commit is written all the same; what ends the process cancels the link.

    Args:
        run_dir: the run directory, a local folder or ``gs://bucket/path``, which may be empty.
        chain: a local folder, which is created if absent, and locked, or ``gs://bucket/path``.
        holds: the run directory, or the job folder of a run in a bucket. A link on its way to a bucket is in its folder :data:`STAGING`.
        quantize: one of :data:`trainer.serving.deltas.row_values.QUANTIZE`; "" for that of the newest link.
        tell: see :class:`CommitExporter`.

    Raises :class:`LinkRefused` for the chain of another run, :class:`TornCheckpoint` for a damaged one, and
    :class:`~transforms.errors.Busy` for one in use.
    """
    encoding_of(quantize or "none", 1)
    files = open_run(run_dir)
    with locked_chain(chain, holds / STAGING) as opened:
        newest = _checked(files, opened)
        exporter = CommitExporter(files, holds, opened, newest, quantize=quantize, tell=tell)
        try:
            yield exporter
        except HeadraceError:
            exporter.finish()
            raise
        finally:
            exporter.cancel()


def _checked(files: RunFiles, chain: WritableChain) -> Link | None:
    """The newest link of a chain to which the run may add. Every manifest is verified, and of the newest link the sizes of its files."""
    newest = chain.newest()
    with translated_write_errors(chain.place, "the link"):
        chain.remove_leftovers(newest)
    if newest is None:
        return None
    _check_sizes(newest)
    read_state(chain.files, newest.hash)
    if not newest_first(files):
        raise LinkRefused("a run without a checkpoint needs an empty chain, got a chain with links", where=chain.place,
                          value=newest.manifest.name, allowed="the chain of this run, or an empty folder",
                          next_step="name another folder for the links")  # fmt: skip
    model = model_digest_of(newest_commit(files).document)
    if model != newest.manifest.model:
        raise LinkRefused("a chain must belong to the model of the run, got the chain of another model", where=chain.place, value=newest.manifest.model[:12],
                          allowed=model[:12], next_step="name another folder for the links")  # fmt: skip
    return newest


def _check_sizes(link: Link) -> None:
    """Raises :class:`TornCheckpoint` for a file that is missing or has another size; its bytes are not read."""
    sizes = link.files.entries(link.folder).sizes
    for name, (size_bytes, _) in link.manifest.array_files().items():
        found = sizes.get(name)
        if found != size_bytes:
            raise TornCheckpoint("a file of a link must have the size that was written", where=f"{link.place}/{name}",
                                 value="no file" if found is None else found, allowed=str(size_bytes),
                                 next_step="name another folder for the links, or copy this one again")  # fmt: skip
