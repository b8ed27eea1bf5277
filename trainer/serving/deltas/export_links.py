"""Write the served weights of a commit as the next link of a chain, in the memory of some windows of rows.

The rows of each table are read once, ascending. Of a delta they are compared by digests with the rows after the link before it. The
link, and the digests for the next one, appear whole: what a killed process leaves is not read, and a later export removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from trainer.checkpoints.local_run import TEMPORARY, LocalRun, delete
from trainer.checkpoints.not_written import translated_write_errors
from trainer.checkpoints.read import open_commit
from trainer.checkpoints.run_files import RunFiles, commit_name, newest_first
from trainer.checkpoints.stored_commit import StoredCommit
from trainer.errors import LinkRefused, TornCheckpoint
from trainer.serving.deltas.chain import Link, check_chain
from trainer.serving.deltas.chain_files import ChainPlace, state_folder
from trainer.serving.deltas.commit_weights import (
    WINDOW_BYTES,
    columns_of,
    dense_arrays,
    newest_commit,
    served_commit,
    weight_stream,
    weights_bytes,
)
from trainer.serving.deltas.link_manifest import (
    DELTA,
    FULL,
    DenseArray,
    LinkManifest,
    LinkTable,
    ServedCommit,
    dense_file,
    link_hash,
)
from trainer.serving.deltas.link_tables import TableWriter
from trainer.serving.deltas.locked_chain import locked_chain
from trainer.serving.deltas.model_digest import model_digest_of
from trainer.serving.deltas.raw_files import RawWriter
from trainer.serving.deltas.row_digests import digest_rows
from trainer.serving.deltas.row_state import (
    RowsOfTable,
    RowState,
    StateWriter,
    digest_stream,
    digested,
    read_state,
)
from trainer.serving.deltas.row_values import EXACT, FLOAT16, INT8, encoding_of
from trainer.serving.deltas.sorted_rows import Rows, RowStream, merge_windows, positions_in, read_ahead
from trainer.serving.deltas.writable_chain import WritableChain, WrittenLink
from transforms.arrays import Array
from transforms.errors import InputError, NotFound

_QUANTIZE_OF = {EXACT: "none", FLOAT16: "fp16", INT8: "int8"}


@dataclass(frozen=True, slots=True)
class _Base:
    """What a delta is computed from: the commit before it, and the digests of a table's rows at that commit."""

    commit: ServedCommit
    stream: Callable[[str, str, int], RowStream]


#: Takes the bytes of weights that are read so far, and those of all.
OnBytes = Callable[[int, int], None]


def _ignore(done: int, total: int) -> None:
    """The default ``on_bytes``."""


#: Keeps the commit of so many epochs from removal while a block runs: :func:`trainer.checkpoints.held_commits.hold_commit`.
Hold = Callable[[int], AbstractContextManager[None]]


def _hold_nothing(epochs: int) -> AbstractContextManager[None]:
    """The default ``hold``."""
    return nullcontext()


def export_full(
    files: RunFiles,
    chain: ChainPlace,
    *,
    staging: Path | None = None,
    epochs: int | None = None,
    quantize: str = "none",
    window_bytes: int = WINDOW_BYTES,
    on_bytes: OnBytes = _ignore,
    hold: Hold = _hold_nothing,
) -> Link:
    """Write a commit as a full snapshot, the next link of ``chain``.

    Args:
        chain: a local folder, which is created if absent, or ``gs://bucket/path``.
        staging: see :func:`~trainer.serving.deltas.locked_chain.locked_chain`.
        epochs: of the commit; None for the newest.
        quantize: one of :data:`trainer.serving.deltas.row_values.QUANTIZE`.
        window_bytes: about so many bytes of rows are in memory at once.
        on_bytes: called with the bytes of weights that are read so far, and those of all.
        hold: keeps the commit from removal meanwhile.

    Raises :class:`~transforms.errors.NotFound` without the commit, :class:`LinkRefused` for a chain of another model,
    :class:`~trainer.errors.TornCheckpoint` for damage, :class:`~transforms.errors.Busy` for a folder in use,
    :class:`~trainer.errors.LinkTaken` if another process adds a link to a chain in a bucket meanwhile, and
    :class:`~trainer.errors.CheckpointNotWritten` without enough disk space. There is no new link of this process then.
    """
    encoding_of(quantize, 1)
    with locked_chain(chain, staging) as opened:
        before = opened.newest()
        with _held_newest(files, hold) if epochs is None else _held_commit(files, epochs, hold) as commit:
            return _Export(files, opened, commit, before, None, quantize, window_bytes, on_bytes).write()


def export_delta(
    files: RunFiles,
    chain: ChainPlace,
    *,
    staging: Path | None = None,
    since: int | None = None,
    quantize: str = "",
    window_bytes: int = WINDOW_BYTES,
    on_bytes: OnBytes = _ignore,
    hold: Hold = _hold_nothing,
) -> Link | None:
    """Write what changed up to the newest commit as the next link; None if the newest link has this commit.

    Args:
        since: begin a chain without a full snapshot: the epochs of the commit that the delta is computed from.
        quantize: as for :func:`export_full`; "" for that of the link before.

    Raises :class:`LinkRefused` where the run has gone back behind the newest link, and otherwise as :func:`export_full`.
    """
    encoding_of(quantize or "none", 1)
    with locked_chain(chain, staging) as opened, _held_newest(files, hold) as commit:
        before = opened.newest()
        if before is not None and before.manifest.commit.sha256 == commit.digest:
            with translated_write_errors(opened.place, "the link"):
                opened.remove_leftovers(before)
            return None
        if before is None:
            base = _since_commit(files, commit, since, window_bytes)
        else:
            base = _since_link(files, opened, before, commit, since, window_bytes)
        quantize = quantize or _quantize_of(before)
        return _Export(files, opened, commit, before, base, quantize, window_bytes, on_bytes).write()


def export_next(
    files: RunFiles,
    chain: WritableChain,
    before: Link | None,
    *,
    quantize: str = "",
    on_bytes: OnBytes = _ignore,
    hold: Hold = _hold_nothing,
) -> Link | None:
    """Write the newest commit as the next link, whatever link that is; None if ``before`` has it, or there is no commit.

    It is a full snapshot where no delta can be computed: in an empty chain, where the run went back behind ``before``, and without the
    rows of ``before`` in the chain or the run.

    Args:
        before: the newest link of the chain.

    Raises as :func:`export_full`, whose arguments the others are.
    """
    if not newest_first(files):
        return None
    with _held_newest(files, hold) as commit:
        if before is not None and before.manifest.commit.sha256 == commit.digest:
            return None
        base = None
        if before is not None and commit.epochs_done > before.manifest.commit.epochs:
            base = _base_of_link(files, chain, before, WINDOW_BYTES)
        quantize = quantize or _quantize_of(before)
        return _Export(files, chain, commit, before, base, quantize, WINDOW_BYTES, on_bytes).write()


@contextmanager
def _held_newest(files: RunFiles, hold: Hold) -> Iterator[StoredCommit]:
    """The newest intact commit. Removal keeps the newest one, so one that is the newest after it is held stays."""
    commit = newest_commit(files)
    while True:
        with hold(commit.epochs_done):
            found = newest_commit(files)
            if found.digest == commit.digest:
                yield found
                return
        commit = found


@contextmanager
def _held_commit(files: RunFiles, epochs: int, hold: Hold) -> Iterator[StoredCommit]:
    with hold(epochs):
        yield _commit_of(files, epochs)


def _quantize_of(link: Link | None) -> str:
    encodings = {one.encoding for one in link.manifest.tables} if link else set()
    return _QUANTIZE_OF[INT8 if INT8 in encodings else FLOAT16 if FLOAT16 in encodings else EXACT]


def _commit_of(files: RunFiles, epochs: int) -> StoredCommit:
    if commit_name(epochs) not in newest_first(files):
        raise NotFound("a run must have the checkpoint of this number of epochs", where=files.place(""), value=epochs,
                       next_step="headrace ckpt ls lists them")  # fmt: skip
    return open_commit(files, commit_name(epochs))


def _since_commit(files: RunFiles, commit: StoredCommit, since: int | None, window_bytes: int) -> _Base:
    if since is None:
        raise InputError("a chain must begin with a full snapshot, or with a delta since a commit of the run", where="--since",
                         next_step="headrace export full, or --since with the epochs of a served SavedModel")  # fmt: skip
    if since >= commit.epochs_done:
        raise InputError("a delta must begin at a commit before the newest", where="--since", value=since,
                         allowed=f"below {commit.epochs_done}")  # fmt: skip
    return _base_of_commit(files, _commit_of(files, since), window_bytes)


def _base_of_commit(files: RunFiles, commit: StoredCommit, window_bytes: int) -> _Base:
    def stream(kind: str, table: str, columns: int) -> RowStream:
        return digested(weight_stream(files, commit, kind, table, columns, window_bytes))

    return _Base(served_commit(commit), stream)


def _since_link(
    files: RunFiles, chain: WritableChain, link: Link, commit: StoredCommit, since: int | None, window_bytes: int
) -> _Base:
    known = link.manifest.commit
    if since is not None and since != known.epochs:
        raise InputError("a delta must begin at the newest link of its chain", where="--since", value=since, allowed=str(known.epochs),
                         next_step="leave --since out, or name another --output")  # fmt: skip
    if commit.epochs_done <= known.epochs:
        raise LinkRefused("a delta needs a commit newer than the newest link", where=files.place(commit_name(commit.epochs_done)),
                          value=commit.epochs_done, allowed=f"above {known.epochs}",
                          next_step="the run went back: headrace export full adds a full snapshot of it")  # fmt: skip
    base = _base_of_link(files, chain, link, window_bytes)
    if base is None:
        raise NotFound("a delta needs the rows of the newest link, beside the chain or in the run", where=chain.place,
                       value=f"without {state_folder(link.hash)}, and {commit_name(known.epochs)}",
                       next_step="headrace export full adds a full snapshot to the chain")  # fmt: skip
    return base


def _base_of_link(files: RunFiles, chain: WritableChain, link: Link, window_bytes: int) -> _Base | None:
    """The rows of a link in its chain, else in the run; None if neither has them."""
    known = link.manifest.commit
    state = read_state(chain.files, link.hash)
    if state is not None:
        return _Base(known, lambda kind, table, columns: digest_stream(chain.files, state, kind, table, window_bytes))
    name = commit_name(known.epochs)
    found = open_commit(files, name) if name in newest_first(files) else None
    return None if found is None or found.digest != known.sha256 else _base_of_commit(files, found, window_bytes)


class _Export:
    """A link on its way into its folder."""

    def __init__(
        self,
        files: RunFiles,
        chain: WritableChain,
        commit: StoredCommit,
        before: Link | None,
        base: _Base | None,
        quantize: str,
        window_bytes: int,
        on_bytes: OnBytes,
    ) -> None:
        self._files, self._chain, self._commit = files, chain, commit
        self._on_bytes, self._done_bytes, self._total_bytes = on_bytes, 0, weights_bytes(commit)
        self._before, self._base, self._quantize, self._window_bytes = before, base, quantize, window_bytes
        self._model = model_digest_of(commit.document)
        self._link, self._state = chain.folder / f"{TEMPORARY}link", chain.folder / f"{TEMPORARY}rows"
        if before is not None and before.manifest.model != self._model:
            raise LinkRefused("a link must have the model of its chain, got another model", where=files.place(""), value=self._model[:12],
                              allowed=before.manifest.model[:12], next_step="export to another folder")  # fmt: skip

    def write(self) -> Link:
        """Write and publish the link; an error leaves nothing."""
        with translated_write_errors(self._chain.place, "the link"):
            self._chain.remove_leftovers(self._before)
            try:
                for folder in (self._link, self._state):
                    folder.mkdir()
                return self._publish()
            except TornCheckpoint:
                self._chain.check_newest(self._before)  # the rows of the link before are removed after the next one
                raise
            finally:
                for folder in (self._link, self._state):
                    if folder.exists():
                        delete(folder)

    def _publish(self) -> Link:
        """Write all files, then let the link appear."""
        before = self._before
        written = [self._table(t, kind, table) for t, (kind, table) in enumerate(sorted(self._commit.model_tables))]
        manifest = LinkManifest(
            0 if before is None else before.manifest.number + 1,
            FULL if self._base is None else DELTA,
            "" if before is None else before.hash,
            self._model,
            served_commit(self._commit),
            None if self._base is None else self._base.commit,
            tuple(table for table, _ in written),
            self._dense(),
        )
        digest = link_hash(manifest.to_bytes())
        if before is not None:
            check_chain([before, Link(LocalRun(self._chain.folder), self._link.name, manifest, digest)])
        state = RowState(digest, tuple(rows for _, rows in written))
        link = WrittenLink(self._link, self._state, manifest, state)
        made = self._chain.publish(link, before, lambda: self._on_bytes(self._total_bytes, self._total_bytes))
        self._on_bytes(self._total_bytes, self._total_bytes)
        return made

    def _table(self, position: int, kind: str, table: str) -> tuple[LinkTable, RowsOfTable]:
        columns = columns_of(self._files, self._commit, kind, table)
        encoding = encoding_of(self._quantize, columns)
        before = None if self._base is None else self._base.stream(kind, table, columns)
        weights = read_ahead(weight_stream(self._files, self._commit, kind, table, columns, self._window_bytes))
        with ExitStack() as stack:
            state = stack.enter_context(closing(StateWriter(self._state, position, kind, table)))
            written = stack.enter_context(
                closing(TableWriter(self._link, position, columns, encoding, f"{kind} table {table}"))
            )
            for now, *then in merge_windows([weights, *([] if before is None else [before])], f"{kind} table {table}"):
                digests = digest_rows(now.values[0])
                state.append(now.ids, digests)
                self._done_bytes += now.ids.nbytes + now.values[0].nbytes
                self._on_bytes(min(self._done_bytes, self._total_bytes), self._total_bytes)
                written.append(*(_changes(now, digests, then[0]) if then else (now, now.ids[:0])))
            rows = state.finish()
            return written.finish(kind, table, rows.rows), rows

    def _dense(self) -> tuple[DenseArray, ...]:
        found = []
        for k, (name, array) in enumerate(sorted(dense_arrays(self._files, self._commit).items())):
            with closing(RawWriter(self._link / dense_file(k))) as file:
                file.append(array)
                found.append(DenseArray(name, array.dtype.str, array.shape, file.finish()))
        return tuple(found)


def _changes(now: Rows, digests: Array, before: Rows) -> tuple[Rows, Array]:
    """The rows of a window that are new or have other weights than before, and the ids that are gone."""
    at, is_known = positions_in(before.ids, now.ids)
    is_same = is_known.copy()
    is_same[is_known] = (before.values[0][at[is_known]] == digests[is_known]).all(axis=1)
    _, is_left = positions_in(now.ids, before.ids)
    return now.chosen(~is_same), before.ids[~is_left]
