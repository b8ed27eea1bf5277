"""Folders of the form name=value in an import: columns, times, side files, and files that were imported before."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import NoLogFiles
from pipelines.ingest.job import ImportConfig, import_logs
from pipelines.ingest.report import ImportReport
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.parquet import parquet_log
from pipelines.parsing.sources import expand_files, find_files, level_names, time_level_names
from tests.warehouse.tables.evolution.scenes import day
from transforms.errors import InputError
from warehouse.errors import SchemaDrift


def write(root: Path, folder: str, rows: int = 3, first: int = 1, name: str = "part-0.parquet", **columns: Any) -> Path:
    path = root / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(day(first, rows, **columns), path)
    return path


def run(root: Path, pattern: str, **options: Any) -> ImportReport:
    found = find_files([pattern])
    levels = {str(Path(file.path).absolute()): tuple(file.folders.columns.items()) for file in found}
    log = parquet_log([*levels], "time", partition_by="day", levels=levels)
    return import_logs(ImportConfig((pattern,), log, str(root / "out"), str(root / "rejects"), **options))


def table(root: Path) -> pa.Table:
    files = sorted((root / "out").rglob("*.parquet"))
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files], promote_options="default")


def write_countries(root: Path) -> None:
    for number in (1, 2):
        for country in ("DE", "FR"):
            write(root, f"date=2026-03-{number:02d}/country={country}", 20, number)


@pytest.mark.parametrize("pattern", ["log", "log/**/*.parquet", "log/*/*/*.parquet"])
def test_a_level_is_a_column_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    monkeypatch.chdir(tmp_path)
    write_countries(tmp_path / "log")
    report = run(tmp_path, pattern)
    assert (report.rows, report.partitions) == (80, ("date=2026-03-01", "date=2026-03-02"))
    found = table(tmp_path)
    assert found.schema.field("country").type == pa.string()
    assert found["country"].to_pylist().count("DE") == found["country"].to_pylist().count("FR") == 40
    again = run(tmp_path, pattern)
    assert (again.rows, again.skipped_files) == (0, 4)


def test_values_of_levels(tmp_path: Path) -> None:
    """Percent-encoded values, nulls, files without the level, and a column of the file that goes before."""
    log = tmp_path / "log"
    write(log, "country=C%C3%B4te%20d%27Ivoire/ds=2026-03-01", 1)
    write(log, "country=__HIVE_DEFAULT_PARTITION__/ds=2026-03-01", 1)
    write(log, "ds=2026-03-01", 1)
    write(log, "country=DE/ds=2026-03-01", 2, country=["DE", "AT"])
    report = run(tmp_path, str(log))
    assert sorted(map(str, table(tmp_path)["country"].to_pylist())) == ["AT", "Côte d'Ivoire", "DE", "None", "None"]
    assert report.counts == {"rows whose column country differs from the level of their folder, which is not read": 1}
    files = find_files([str(log)])
    assert (level_names(files), time_level_names(files)) == (("country",), ("ds",))


def test_equal_files_of_two_folders_are_two_files(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(log, "country=DE")
    run(tmp_path, str(log))
    write(log, "country=FR")  # the same bytes, and the same name
    report = run(tmp_path, str(log))
    assert (report.rows, report.skipped_files) == (3, 1)
    assert sorted(table(tmp_path)["country"].to_pylist()) == ["DE"] * 3 + ["FR"] * 3


def test_files_that_a_release_without_levels_imported_are_known(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(log, "country=DE")
    run(tmp_path, str(log))
    (journal,) = (tmp_path / "out.imports").glob("*.json")
    document = json.loads(journal.read_text())
    for source in document["sources"]:
        del source["levels"]
    journal.write_text(json.dumps(document))
    assert run(tmp_path, str(log)).skipped_files == 1


def test_text_has_levels_too(tmp_path: Path) -> None:
    for country in ("DE", "FR"):
        folder = tmp_path / f"log/country={country}"
        folder.mkdir(parents=True)
        (folder / "x.csv").write_text("time,user\n2026-03-01T00:00:00Z,a\n2026-03-01T00:00:01Z,b\nno time,c\n")
    schema = LogSchema.from_document(
        {"format": "csv", "header": True, "time": {"column": "time"}, "partition_by": "day",
         "columns": [{"name": "time", "type": "timestamp"}, {"name": "user", "type": "string"}]}
    )  # fmt: skip
    config = ImportConfig((str(tmp_path / "log"),), schema, str(tmp_path / "out"), str(tmp_path / "rejects"), 0.5)
    report = import_logs(config)
    assert (report.rows, report.rejected, len(set(report.rejects))) == (4, 2, 2), (
        "files of equal bytes have their own rejects"
    )
    found = table(tmp_path)
    assert sorted(zip(found["country"].to_pylist(), found["user"].to_pylist(), strict=True)) == [
        ("DE", "a"), ("DE", "b"), ("FR", "a"), ("FR", "b"),
    ]  # fmt: skip


def test_keys_may_be_levels(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(log, "country=DE", user=["a", "a", "b"])
    write(log, "country=FR", user=["a", "b", "b"])
    assert run(tmp_path, str(log), unique_by=("user", "country"), levels=("country",)).rows == 4
    shutil.rmtree(log)
    write(log, "country=DE", user=["a", "c", "c"], name="late.parquet")
    assert run(tmp_path, str(log), unique_by=("user", "country"), levels=("country",)).rows == 1
    with pytest.raises(InputError, match="must be a column"):
        run(tmp_path, str(log), unique_by=("user", "land"))


SIDE_FILES = ["_SUCCESS", "_temporary/0/part-1.parquet", ".part-0.parquet.crc", "_part.parquet", ".part.parquet",
              "country=DE/_SUCCESS", "country=DE/.part-0.parquet.crc", "country=DE/_temporary/part.parquet"]  # fmt: skip


@pytest.mark.parametrize("pattern", ["log", "log/**", "log/**/*", "log/**/*.parquet", "log/*/*"])
def test_side_files_of_writers_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log"
    good = write(log, "country=DE")
    for name in SIDE_FILES:
        (log / name).parent.mkdir(parents=True, exist_ok=True)
        (log / name).write_bytes(b"not Parquet")
    assert expand_files([pattern]) == (str(good.relative_to(tmp_path)),)
    assert expand_files([str(log / "_SUCCESS"), str(good)][1:]) == (str(good),)
    with pytest.raises(NoLogFiles, match="must match a log file") as caught:
        expand_files([str(log / "_part.parquet")])
    assert "side files of writers" in caught.value.allowed


def test_a_folder_of_files_is_as_before(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "sub/c.csv", "x=1/d.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [Path(path).name for path in expand_files([str(tmp_path)])] == ["a.csv", "b.csv", "d.csv"]


def test_files_of_one_import_may_differ_in_their_columns(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(log, "", 2, name="a.parquet", k=pa.array([1, 2], pa.int32()), at=pa.array([1, 2], pa.timestamp("ms")))
    write(log, "", 2, name="b.parquet", k=[2**40, 4], city=["x", "y"], at=pa.nulls(2))
    write(log, "", 2, name="c.parquet", city=pa.nulls(2), at=pa.array([1, 2], pa.timestamp("ns")))
    assert run(tmp_path, str(log)).rows == 6
    found = table(tmp_path)
    assert [str(found.schema.field(name).type) for name in ("k", "city", "at")] == ["int64", "string", "timestamp[ns]"]
    assert sorted(map(str, found["k"].to_pylist())) == ["1", "1099511627776", "2", "4", "None", "None"]
    assert sorted(map(str, found["city"].to_pylist())) == ["None"] * 4 + ["x", "y"]


def test_files_of_one_import_that_do_not_fit_are_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(log, "", 2, name="a.parquet", k=[1, 2], until=pa.array([1, 2], pa.timestamp("ns")))
    other = write(log, "", 2, name="b.parquet", k=["1", "2"])
    with pytest.raises(SchemaDrift, match="a file of this import has a column of another type") as caught:
        run(tmp_path, str(log))
    assert (caught.value.where, caught.value.value, caught.value.allowed) == (f"{other}, column k", "string", "int64")
    assert "headrace table import NAME FILES" in caught.value.next_step
    write(log, "", 2, name="b.parquet", time=None)
    with pytest.raises(SchemaDrift, match="a file of this import lacks the time column") as caught:
        run(tmp_path, str(log))
    assert caught.value.where == f"{other}, column time"
    write(log, "", 2, name="b.parquet", until=pa.array([253_402_300_799] * 2, pa.timestamp("s")))
    with pytest.raises(SchemaDrift, match="must fit its finest unit") as caught:
        run(tmp_path, str(log))
    assert caught.value.where == f"{other}, column until"
    assert not (tmp_path / "out").exists()
