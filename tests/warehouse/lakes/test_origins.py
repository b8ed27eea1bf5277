"""The files of the origins of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.errors import CorruptFile
from warehouse.lakes.comparison import EditedOrigins
from warehouse.lakes.origins import Origins, read_origins, write_origins
from warehouse.storage.storage import Storage

_ROWS = st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 2**40)), max_size=20)


def origins_of(rows: list[tuple[int, int]]) -> Origins:
    file = np.array([file for file, _ in rows], np.int64)
    position = np.array([position if file >= 0 else -1 for file, position in rows], np.int64)
    return Origins(("a", "b/ü", "c"), file, position)


@given(_ROWS)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]]) -> None:
    storage, known = Storage(str(tmp_path_factory.getbasetemp() / "origins")), origins_of(rows)
    found = read_origins(storage, write_origins(storage, "t", known), len(rows))
    assert [found.files[file] if file >= 0 else None for file in found.file] == [
        known.files[file] if file >= 0 else None for file in known.file
    ]
    assert found.position.tolist() == known.position.tolist()
    assert found.sources == known.sources


@given(st.data())
def test_damaged_bytes_are_an_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    storage = Storage(str(tmp_path_factory.getbasetemp() / "damaged"))
    path = write_origins(storage, "t", origins_of([(0, 1), (-1, 0), (2, 7), (1, 3)]))
    written = storage.read_bytes(path)
    content = bytearray(written)
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))]
    if content == written:
        return
    storage.write_atomic(path, bytes(content))
    with pytest.raises(CorruptFile, match="origins"):
        read_origins(storage, path, 4)


def test_origins_of_another_part_are_an_error(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    with pytest.raises(CorruptFile, match="1 rows instead of 2"):
        read_origins(storage, write_origins(storage, "t", origins_of([(0, 1)])), 2)


@given(
    _ROWS,
    st.lists(
        st.tuples(st.integers(0, 19), st.none() | st.sampled_from(["b/ü", "new"]), st.integers(0, 9)), max_size=12
    ),
)
def test_edits_of_origins(rows: list[tuple[int, int]], edits: list[tuple[int, str | None, int]]) -> None:
    known = origins_of(rows)
    expected = [
        (known.files[file], position) if file >= 0 else None
        for file, position in zip(known.file, known.position, strict=True)
    ]
    edited = EditedOrigins(known)
    for row, path, position in edits:
        if row >= len(rows):
            continue
        if path is None:
            edited.forget(np.array([row]))
        else:
            edited.move(np.array([row]), path, np.array([position]))
        expected[row] = None if path is None else (path, position)
    found = edited.origins()
    assert [
        (found.files[file], position) if file >= 0 else None
        for file, position in zip(found.file, found.position, strict=True)
    ] == expected
    assert set(found.files) == found.sources
