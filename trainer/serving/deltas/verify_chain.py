"""Read every byte of a chain, and say which file is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.checkpoints.local_run import read_file
from trainer.errors import OtherFormat, TornCheckpoint
from trainer.serving.deltas.chain import Link, check_chain, link_folders, no_links, read_link
from trainer.serving.deltas.commit_weights import WINDOW_BYTES
from trainer.serving.deltas.link_manifest import MANIFEST, dense_file, table_file
from trainer.serving.deltas.link_tables import removed_stream, set_stream
from trainer.serving.deltas.raw_files import RawReader
from trainer.serving.deltas.row_state import STATE, read_state, state_folder
from trainer.serving.deltas.sorted_rows import RowStream, merge_windows
from transforms.errors import HeadraceError


@dataclass(frozen=True, slots=True)
class LinkCheck:
    """A file of a chain after all of its bytes were read; ``problem``: "" if it is intact.

    Attributes:
        link: the name of its link, or of the hidden folder with the rows for the next export.
        holds: what it holds in words.
    """

    link: str
    file: str
    holds: str
    size_bytes: int
    problem: str = ""


def verify_chain(folder: Path) -> Iterator[LinkCheck]:
    """Each file of a chain, or of one link, in order. Raises :class:`NotFound` without a link."""
    folders = [folder] if (folder / MANIFEST).exists() else link_folders(folder)
    if not folders:
        raise no_links(folder)
    before: Link | None = None
    for one in folders:
        link, check = _manifest(one, before)
        yield check
        if link is not None:
            yield from _arrays(link)
        before = link
    if before is not None and folders != [folder]:
        yield from _rows(folder, before)


def _manifest(folder: Path, before: Link | None) -> tuple[Link | None, LinkCheck]:
    """A link, or None for a damaged manifest; a link that does not follow the one before it is a problem of its manifest."""
    place = folder / MANIFEST
    size_bytes = place.stat().st_size if place.is_file() else 0
    try:
        link = read_link(folder)
    except HeadraceError as error:
        return None, LinkCheck(folder.name, MANIFEST, "manifest", size_bytes, error.what)
    try:
        check_chain([link] if before is None else [before, link])
    except TornCheckpoint as error:
        return link, LinkCheck(folder.name, MANIFEST, "manifest", size_bytes, error.what)
    return link, LinkCheck(folder.name, MANIFEST, f"manifest, hash {link.hash[:12]}", size_bytes)


def _arrays(link: Link) -> Iterator[LinkCheck]:
    found = {file: _file_problem(link.folder / file, *one) for file, one in link.manifest.array_files().items()}
    sizes = {file: size_bytes for file, (size_bytes, _) in link.manifest.array_files().items()}
    for t, table in enumerate(link.manifest.tables):
        files = {suffix: table_file(t, suffix) for suffix in table.arrays()}
        if not any(found[file] for file in files.values()):
            found[files["ids"]] = _ids_problem(link, t)
        for suffix, file in files.items():
            yield LinkCheck(link.folder.name, file, f"{table.place}, {suffix}", sizes[file], found[file])
    for k, dense in enumerate(link.manifest.dense):
        file = dense_file(k)
        yield LinkCheck(link.folder.name, file, f"dense {dense.name}", sizes[file], found[file])


def _file_problem(path: Path, size_bytes: int, sha256: str) -> str:
    """What is wrong with the bytes of a file; "" if they are those that were written."""
    try:
        reader = RawReader(path, np.dtype("u1"), (size_bytes,), sha256)
        while len(reader.read(WINDOW_BYTES)):
            pass
        reader.finish()
    except TornCheckpoint as error:
        return error.what
    return ""


def _ids_problem(link: Link, position: int) -> str:
    """What is wrong with the ids of an intact table: they must ascend, and none be both set and removed."""
    try:
        _check_ids(link, position)
    except TornCheckpoint as error:
        return error.what
    return ""


def _check_ids(link: Link, position: int) -> None:
    """Raises :class:`TornCheckpoint` unless the ids ascend, and none is both set and removed."""
    where = link.manifest.tables[position].place
    streams: list[RowStream] = [set_stream(link, position, WINDOW_BYTES), removed_stream(link, position, WINDOW_BYTES)]
    for changed, removed in merge_windows(streams, where):
        if len(np.intersect1d(changed.ids, removed.ids, assume_unique=True)):
            raise TornCheckpoint("an id must not be set and removed by one link", where=where)


def _rows(chain: Path, link: Link) -> Iterator[LinkCheck]:
    """The digests from which the next delta is computed; a chain that was copied may lack them."""
    folder = state_folder(chain, link.hash)
    if not folder.exists():
        return
    try:
        state = read_state(chain, link.hash)
    except (TornCheckpoint, OtherFormat) as error:
        yield LinkCheck(folder.name, STATE, "rows for the next export", 0, error.what)
        return
    if state is None:
        return
    yield LinkCheck(folder.name, STATE, "rows for the next export", len(read_file(folder / STATE)))
    for t, table in enumerate(state.tables):
        for suffix, row_bytes, sha256 in (("ids", 8, table.ids), ("digests", 16, table.digests)):
            size_bytes = row_bytes * table.rows
            problem = _file_problem(folder / table_file(t, suffix), size_bytes, sha256)
            holds = f"{table.kind} table {table.table}, {suffix}"
            yield LinkCheck(folder.name, table_file(t, suffix), holds, size_bytes, problem)
