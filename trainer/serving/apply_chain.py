"""Apply a chain of links to what is served: a state of rows, or a SavedModel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.errors import MissingLink, TornCheckpoint
from trainer.run.progress.lock import run_lock
from trainer.serving.deltas.chain import Link, Position, links_to_apply, links_until
from trainer.serving.deltas.chain_files import ChainPlace, ChainReader, LinkPlace, read_chain
from trainer.serving.deltas.commit_weights import WINDOW_BYTES
from trainer.serving.deltas.served_rows import SERVED, apply_to_rows, open_served
from trainer.serving.saved_model_document import is_saved_model, read_served_model
from transforms.errors import InputError, StorageError

#: How long links may be damaged or not whole, as they are while they are copied.
PATIENCE_SECS = 60.0
ROWS, SAVED_MODEL = "rows", "SavedModel"


@dataclass(frozen=True, slots=True)
class Applied:
    """What was applied.

    Attributes:
        kind: of the target, :data:`ROWS` or :data:`SAVED_MODEL`.
        place: the folder with the result.
        before: what the target held; None for a new state of rows.
        after: what the result holds.
        links: the links that were applied, oldest first; none if the target was at the end of the chain.
    """

    kind: str
    place: Path
    before: Position | None
    after: Position
    links: tuple[Link, ...]


#: Takes the rows that are written so far, and those of all tables.
OnRows = Callable[[int, int], None]


def _ignore(done: int, total: int) -> None:
    """The default ``on_rows``."""


def apply_chain(
    chain: ChainPlace,
    target: Path,
    *,
    until: int | None = None,
    output: Path | None = None,
    window_bytes: int = WINDOW_BYTES,
    on_rows: OnRows = _ignore,
) -> Applied:
    """Bring a target to the end of a chain, or to its link ``until``.

    Args:
        chain: the folder of a chain, or of one link, or ``gs://bucket/path``.
        target: the folder of a SavedModel or of a state of rows; a new folder becomes a state of rows.
        output: of a SavedModel, a new folder for the result; None: it takes the place of the target.
        window_bytes: about so many bytes of the rows of links are in memory at once.
        on_rows: called with the rows that are written so far, and those of all tables.

    The target is changed at once: a crash leaves the one before or the one after. Raises :class:`~trainer.errors.LinkRefused` for links
    that do not follow the target, :class:`~trainer.errors.TornCheckpoint` for damage, :class:`~transforms.errors.Busy` for a target that
    another process changes, and :class:`~transforms.errors.InputError` for a folder of another kind.
    """
    links = read_chain(chain)
    return _apply(links if until is None else links_until(links, until), target, output, window_bytes, on_rows)


def _apply(
    links: Sequence[Link],
    target: Path,
    output: Path | None = None,
    window_bytes: int = WINDOW_BYTES,
    on_rows: OnRows = _ignore,
) -> Applied:
    if is_saved_model(target):
        return _apply_to_saved_model(links, target, output, window_bytes, _Counted(links[-1], on_rows))
    if output is not None:
        raise InputError("--output needs a SavedModel, got a state of rows", where="--output", value=str(output),
                         next_step="leave --output out")  # fmt: skip
    _check_target(target)
    if not target.exists():
        links_to_apply(links, None, str(target))  # nothing is created for links that would be refused
    with run_lock(target, "state folder"):
        state = open_served(target)
        before = None if state is None else state.position
        pending = links_to_apply(links, before, str(target))
        if not pending and state is not None:
            return Applied(ROWS, target, before, state.position, ())
        counted = _Counted(links[-1], on_rows)
        made = apply_to_rows(target, pending, state, window_bytes=window_bytes, on_rows=counted)
        return Applied(ROWS, target, before, made.position, pending)


def follow_chain(
    chain: ChainPlace,
    target: Path,
    *,
    wait: Callable[[], None],
    patience_secs: float = PATIENCE_SECS,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Applied]:
    """Bring a target to the end of a chain, again and again as links are added; yields what was applied each time.

    A chain may have no link at first, and links that are being copied to it, in any order: what does not fit, such as a delta before its
    full snapshot, is read again, for up to ``patience_secs`` since a link was added. It ends by what ``wait`` raises, which is called between looks, and raises as :func:`apply_chain`.
    """
    reader = ChainReader(chain)
    looked: tuple[LinkPlace, ...] = ()
    is_applied, added_secs = True, clock()
    while True:
        if (found := reader.places()) != looked:
            looked, is_applied, added_secs = found, False, clock()
        if looked and not is_applied:
            try:
                applied = _apply(reader.links(looked), target)
            except (TornCheckpoint, StorageError, MissingLink):
                if clock() - added_secs > patience_secs:
                    raise
            else:
                is_applied = True
                if applied.links:
                    yield applied
        wait()


class _Counted:
    """Adds rows up, and reports them."""

    def __init__(self, last: Link, on_rows: OnRows) -> None:
        self._done, self._total = 0, sum(one.rows_after for one in last.manifest.tables)
        self._on_rows = on_rows

    def __call__(self, rows: int) -> None:
        self._done += rows
        self._on_rows(min(self._done, self._total), self._total)


def _check_target(target: Path) -> None:
    """Raises :class:`InputError` for a folder with other content than a state of rows."""
    if not target.exists() or (target / SERVED).exists():
        return
    other = sorted(path.name for path in target.iterdir() if path.name != "lock" and not path.name.startswith((".", "rows-"))) if target.is_dir() else [target.name]  # fmt: skip
    if other:
        raise InputError("a target must be a SavedModel, a state of rows or a new folder", where=str(target), value=", ".join(other[:4])[:200],
                         next_step="name the folder of a version of the model, which holds saved_model.pb, or a new folder")  # fmt: skip


def _apply_to_saved_model(
    links: Sequence[Link], target: Path, output: Path | None, window_bytes: int, counted: _Counted
) -> Applied:
    if output is not None and (output.exists() or output.is_symlink()):
        raise InputError(
            "the output must be a new folder", where="--output", value=str(output), next_step="name another folder"
        )
    place = Path(os.path.abspath(output or target))  # "." has no name
    with run_lock(place.with_name(f".{place.name}.lock"), "SavedModel"):
        served = read_served_model(target)
        pending = links_to_apply(links, served.position, str(target))
        if not pending:
            return Applied(SAVED_MODEL, target, served.position, served.position, ())
        from trainer.serving.saved_model_weights import apply_to_saved_model  # TensorFlow is loaded for it alone

        after = apply_to_saved_model(target, pending, served, output, window_bytes=window_bytes, on_rows=counted)
        return Applied(SAVED_MODEL, output or target, served.position, after, pending)
