"""The file of a metric history, beside the other files of a commit. It is read without TensorFlow, and checked as untrusted bytes.

The commit's manifest does not name it: its times differ between two runs whose weights are equal bit for bit. Its own digest covers it.

====================  ==================================================================================
bytes                 content
====================  ==================================================================================
22                    ``headrace-history-1``, with a line's end and zeros
4                     the length of the header, little-endian
the header            canonical JSON: labels, ``first_step``, ``window_steps``, numbers of windows and commits
the rest but 32       deflated rows of all windows and commits, float64, little-endian
32                    SHA-256 of all bytes before
====================  ==================================================================================
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np

from trainer.checkpoints.commit_manifest import COMMIT_FORMATS, CommitManifest
from trainer.checkpoints.manifest import MANIFEST, canonical_json, parse_json, verified_document
from trainer.checkpoints.run_files import RunFiles, commit_name
from trainer.errors import TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from trainer.run.history.checks import check_history
from trainer.run.history.columns import HistoryLayout
from trainer.run.history.run_history import FIRST_WINDOW_STEPS, MOST_COMMITS, MOST_WINDOWS, RunHistory
from transforms.analysis.target import MOST_TASKS, Task
from transforms.derived_documents import document_of, whole

#: The file's name in the folder of a commit, or of its part of rank 0.
HISTORY: Final = "history.bin"
_MAGIC: Final = b"headrace-history-1\n\0\0\0"
_LENGTH_BYTES: Final = 4
_DIGEST_BYTES: Final = 32
_MOST_HEADER_BYTES: Final = 1 << 20
_MOST_STEPS: Final = 1 << 53
#: A file of the most labels is smaller.
MOST_BYTES: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class _Label:
    name: str
    task: Task


@dataclass(frozen=True, slots=True)
class _Header:
    labels: tuple[_Label, ...]
    first_step: Annotated[int, whole(most=_MOST_STEPS)]
    window_steps: Annotated[int, whole(FIRST_WINDOW_STEPS, _MOST_STEPS)]
    windows: Annotated[int, whole(most=MOST_WINDOWS)]
    commits: Annotated[int, whole(most=MOST_COMMITS)]


def history_bytes(history: RunHistory) -> bytes:
    """The bytes of the file of a history; equal histories give equal bytes."""
    header = canonical_json(
        document_of(
            _Header(
                tuple(_Label(*one) for one in history.layout.labels),
                history.first_step,
                history.window_steps,
                len(history.windows),
                len(history.commits),
            )
        )
    )
    rows = np.concatenate([history.windows, history.commits]).astype("<f8").T  # columns are alike, so they deflate well
    content = _MAGIC + len(header).to_bytes(_LENGTH_BYTES, "little") + header + zlib.compress(rows.tobytes(), 6)
    return content + hashlib.sha256(content).digest()


def history_of_bytes(data: bytes, where: str) -> RunHistory:
    """The inverse of :func:`history_bytes`. Raises :class:`TornCheckpoint` for bytes that are no history."""
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    begin = len(_MAGIC) + _LENGTH_BYTES
    if not content.startswith(_MAGIC) or hashlib.sha256(content).digest() != digest:
        raise TornCheckpoint("a metric history must have its first bytes and its digest", where=where, value=f"{len(data):,} bytes")  # fmt: skip
    length = int.from_bytes(content[len(_MAGIC) : begin], "little")
    if length > min(_MOST_HEADER_BYTES, len(content) - begin):
        raise TornCheckpoint("the header of a metric history must be in its file", where=where, value=length, allowed=f"at most {len(content) - begin}")  # fmt: skip
    header = OPEN.read(_Header, DocumentField(parse_json(content[begin : begin + length], where), where))
    if not 1 <= len(header.labels) <= MOST_TASKS or len({one.name for one in header.labels}) != len(header.labels):
        raise TornCheckpoint("a metric history must have each label once", where=where, value=[one.name for one in header.labels][:8], allowed=f"1 to {MOST_TASKS} labels")  # fmt: skip
    layout = HistoryLayout(tuple((one.name, one.task) for one in header.labels))
    count = header.windows + header.commits
    rows = np.frombuffer(_inflated(content[begin + length :], count * layout.width * 8, where), "<f8")
    rows = np.ascontiguousarray(rows.reshape(layout.width, count).T).astype(np.float64)
    found = RunHistory(layout, header.first_step, header.window_steps, rows[: header.windows], rows[header.windows :])
    check_history(found, where)
    return found


def _inflated(data: bytes, size_bytes: int, where: str) -> bytes:
    """Exactly ``size_bytes`` bytes. Raises :class:`TornCheckpoint` for more, fewer, and for others that are not deflated."""
    inflating = zlib.decompressobj()
    try:
        found = inflating.decompress(data, size_bytes + 1)
    except zlib.error as error:
        raise TornCheckpoint("the rows of a metric history must be deflated", where=where, value=str(error)) from error
    if len(found) != size_bytes or not inflating.eof or inflating.unused_data:
        raise TornCheckpoint("the rows of a metric history must have the size that its header says", where=where,
                             value=f"{len(found):,} bytes", allowed=f"{size_bytes:,}")  # fmt: skip
    return found


def history_place(files: RunFiles, epochs: int) -> str:
    """The path of the history of a commit: in its folder, or in that of its part of rank 0. Raises :class:`TornCheckpoint`."""
    name = commit_name(epochs)
    where = files.place(f"{name}/{MANIFEST}")
    manifest = verified_document(files.read(f"{name}/{MANIFEST}"), where)
    if manifest.members().get("format", manifest).value not in COMMIT_FORMATS:
        return f"{name}/{HISTORY}"
    return f"{CommitManifest.read(manifest, where).parts[0].folder}/{HISTORY}"


def read_history(files: RunFiles, epochs: int) -> RunHistory | None:
    """The history up to a commit; None for a commit of a release that kept none.

    Raises :class:`TornCheckpoint` for damaged bytes or a damaged commit, and :class:`~transforms.errors.StorageError`.
    """
    place = history_place(files, epochs)
    if HISTORY not in files.sizes(place.rpartition("/")[0]):
        return None
    return history_of_bytes(files.read_small(place, MOST_BYTES), files.place(place))


def resumed_history(
    files: RunFiles, epochs: int, layout: HistoryLayout, step: int, on_skip: Callable[[str], None]
) -> RunHistory:
    """The history that a run goes on with after ``step`` steps; ``on_skip`` takes the reason why it begins again."""
    try:
        found = read_history(files, epochs)
        if found is not None and (found.layout, found.step) != (layout, step):
            raise TornCheckpoint("a metric history must end with its commit", where=files.place(history_place(files, epochs)),
                                 value=f"step {found.step}", allowed=f"step {step}, of the model's labels")  # fmt: skip
    except TornCheckpoint as error:
        on_skip(f"the metric history begins again: {error.what} ({error.where})")
        found = None
    return RunHistory.empty(layout, step) if found is None else found
