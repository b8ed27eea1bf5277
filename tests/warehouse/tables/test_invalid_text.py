"""Raw text that is not UTF-8 is refused at registration, or always read with U+FFFD."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.transforms.kernels.test_text_validity import as_text
from transforms.errors import InputError, InvalidText
from warehouse import Warehouse, append_rows, list_tables, read_raw, register_table
from warehouse.errors import ChangedData
from warehouse.files.digests import column_digest
from warehouse.tables.manifests import current_fragments
from warehouse.tables.parquet import read_whole

CITIES = [b"Bern", b"Z\xfcrich", "Genève".encode(), None, b"\xed\xa0\x80Basel"]
READ = ["Bern", "Z\ufffdrich", "Genève", None, "\ufffd\ufffd\ufffdBasel"]
PART = "date=2026-01-01/hour=00/part.parquet"


def write(root: Path, cities: list[bytes | None], part: str = PART, row_group_size: int = 2, **options: bool) -> Path:
    path = root / part
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"city": as_text(cities), "n": pa.array(range(len(cities)), pa.int64())})
    pq.write_table(table, path, row_group_size=row_group_size, store_schema=False, **options)
    return root


def fragments(warehouse: Warehouse) -> list[object]:
    with warehouse.catalog.read() as connection:
        return [placed.fragment for placed in current_fragments(connection, "log")]


def test_a_file_is_refused_with_file_column_row_and_bytes(warehouse: Warehouse, tmp_path: Path) -> None:
    root = write(tmp_path / "log", [b"a", b"b", b"c", *CITIES])
    with pytest.raises(InvalidText, match="text must be UTF-8") as caught:
        register_table(warehouse, "log", str(root))
    assert caught.value.where == f"{root / PART}, column city, row 4"
    assert caught.value.value == b"Z\xfcrich"
    assert "--invalid-text replace" in caught.value.next_step
    assert list_tables(warehouse) == ()


def test_the_rule_is_one_of_two(warehouse: Warehouse, tmp_path: Path) -> None:
    root = write(tmp_path / "log", CITIES)
    with pytest.raises(InputError, match="must be refuse or replace"):
        register_table(warehouse, "log", str(root), invalid_text="ignore")


@pytest.mark.parametrize("dictionaries", [True, False])
def test_replaced_text_is_the_same_at_each_read(warehouse: Warehouse, tmp_path: Path, dictionaries: bool) -> None:
    root = write(tmp_path / "log", CITIES * 40, use_dictionary=dictionaries)
    found = register_table(warehouse, "log", str(root), invalid_text="replace")
    assert [place.partition(",")[2] for place in found.replaced] == [" column city, row 1"]
    (fragment,) = fragments(warehouse)
    for coded in ([], ["city"]):
        for verify in (True, False):
            read = read_raw(warehouse.storage, fragment, ["n", "city"], verify, coded=coded)
            assert read.column("city").to_pylist() == READ * 40
            assert column_digest(read.column("city")) == fragment.digests["city"]
    # The other columns of the file, and a table that holds the replacement itself, are as they always were.
    plain = pa.chunked_array([pa.array(READ * 40)])
    assert column_digest(plain) == fragment.digests["city"]


def test_a_file_that_turns_invalid_later_is_named(warehouse: Warehouse, tmp_path: Path) -> None:
    root = write(tmp_path / "log", [b"a", b"b", b"c", b"d", b"e"])
    register_table(warehouse, "log", str(root))
    write(root, CITIES)
    (fragment,) = fragments(warehouse)
    with pytest.raises(InvalidText) as caught:
        read_raw(warehouse.storage, fragment, ["city"])
    assert caught.value.where == f"{root / PART}, column city, row 1"
    write(root, [b"a", b"b", b"c", b"d", b"f"])
    with pytest.raises(ChangedData):
        read_raw(warehouse.storage, fragment, ["city"])


def test_late_rows_and_values_have_the_same_checks(warehouse: Warehouse, tmp_path: Path) -> None:
    root = write(tmp_path / "log", [b"a", b"b"])
    register_table(warehouse, "log", str(root))
    late = str(write(tmp_path, CITIES, "late.parquet") / "late.parquet")
    where = {"partition": "date=2026-01-01/hour=00"}
    with pytest.raises(InvalidText, match="text must be UTF-8") as caught:
        append_rows(warehouse, "log", [late], **where)
    assert caught.value.where == f"{late}, column city, row 1"
    with pytest.raises(InvalidText):
        read_whole(warehouse.storage, late)
    done = append_rows(warehouse, "log", [late], invalid_text="replace", **where)
    assert done.rows == 5
    assert done.notes == (f"written with U+FFFD for what is not UTF-8: {late}, column city, row 1 is the first",)
    assert [read_raw(warehouse.storage, one, ["city"]).column("city").to_pylist() for one in fragments(warehouse)] == [
        ["a", "b"],
        READ,
    ]
