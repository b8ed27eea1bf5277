"""Read every byte of a chain, and say which file is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainer.checkpoints.run_files import RunFiles
from trainer.errors import OtherFormat, TornCheckpoint
from trainer.serving.deltas.chain import Link, check_chain
from trainer.serving.deltas.chain_files import ChainPlace, ChainReader, LinkPlace, no_links, read_link, state_folder
from trainer.serving.deltas.commit_weights import WINDOW_BYTES
from trainer.serving.deltas.link_manifest import dense_file, table_file
from trainer.serving.deltas.link_tables import removed_stream, set_stream
from trainer.serving.deltas.raw_files import RawReader
from trainer.serving.deltas.row_state import STATE, read_state
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


def verify_chain(chain: ChainPlace) -> Iterator[LinkCheck]:
    """Each file of a chain, or of one link, in order. Raises :class:`NotFound` without a link."""
    reader = ChainReader(chain)
    places = reader.places()
    if not places:
        raise no_links(str(chain))
    before: Link | None = None
    for one in places:
        link, check = _manifest(reader.files, one, before)
        yield check
        if link is not None:
            yield from _arrays(link)
        before = link
    if before is not None and not reader.is_one_link:
        yield from _rows(before)


def _manifest(files: RunFiles, place: LinkPlace, before: Link | None) -> tuple[Link | None, LinkCheck]:
    """A link, or None for a damaged manifest; a link that does not follow the one before it is a problem of its manifest."""
    folder, _, name = place.manifest.rpartition("/")
    size_bytes = files.entries(folder).sizes.get(name, 0)
    try:
        link = read_link(files, place)
    except HeadraceError as error:
        return None, LinkCheck(place.name, name, "manifest", size_bytes, error.what)
    try:
        check_chain([link] if before is None else [before, link])
    except TornCheckpoint as error:
        return link, LinkCheck(link.manifest.name, name, "manifest", size_bytes, error.what)
    return link, LinkCheck(link.manifest.name, name, f"manifest, hash {link.hash[:12]}", size_bytes)


def _arrays(link: Link) -> Iterator[LinkCheck]:
    name, wanted = link.manifest.name, link.manifest.array_files()
    found = {file: _file_problem(link.files, f"{link.folder}/{file}", *one) for file, one in wanted.items()}
    sizes = {file: size_bytes for file, (size_bytes, _) in wanted.items()}
    for t, table in enumerate(link.manifest.tables):
        files = {suffix: table_file(t, suffix) for suffix in table.arrays()}
        if not any(found[file] for file in files.values()):
            found[files["ids"]] = _ids_problem(link, t)
        for suffix, file in files.items():
            yield LinkCheck(name, file, f"{table.place}, {suffix}", sizes[file], found[file])
    for k, dense in enumerate(link.manifest.dense):
        file = dense_file(k)
        yield LinkCheck(name, file, f"dense {dense.name}", sizes[file], found[file])


def _file_problem(files: RunFiles, path: str, size_bytes: int, sha256: str) -> str:
    """What is wrong with the bytes of a file; "" if they are those that were written."""
    try:
        reader = RawReader(files, path, np.dtype("u1"), (size_bytes,), sha256)
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


def _rows(link: Link) -> Iterator[LinkCheck]:
    """The digests from which the next delta is computed; a chain that was copied may lack them."""
    files, folder = link.files, state_folder(link.hash)
    sizes = files.entries(folder).sizes
    try:
        state = read_state(files, link.hash)
    except (TornCheckpoint, OtherFormat) as error:
        yield LinkCheck(folder, STATE, "rows for the next export", 0, error.what)
        return
    if state is None:
        return
    yield LinkCheck(folder, STATE, "rows for the next export", sizes.get(STATE, 0))
    for t, table in enumerate(state.tables):
        for suffix, row_bytes, sha256 in (("ids", 8, table.ids), ("digests", 16, table.digests)):
            size_bytes = row_bytes * table.rows
            problem = _file_problem(files, f"{folder}/{table_file(t, suffix)}", size_bytes, sha256)
            holds = f"{table.kind} table {table.table}, {suffix}"
            yield LinkCheck(folder, table_file(t, suffix), holds, size_bytes, problem)
