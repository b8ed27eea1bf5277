"""Garbage collection deletes only regular files of the home with names that Headrace gives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sqlalchemy import select, update

from tests.warehouse.scenes import evict_component, model, work
from transforms.errors import StorageError
from warehouse import (
    CompactionPolicy,
    Warehouse,
    collect_garbage,
    compact_memos,
    read_solution,
    submit_model,
    verify_warehouse,
)
from warehouse.catalog import schema
from warehouse.files.memo_file import memo_path
from warehouse.files.own_files import kind_of, list_home
from warehouse.storage.layout import COMPACTION
from warehouse.storage.storage import Storage

HEX = "0123456789abcdef"
LEASE, DIGEST = HEX * 2, HEX * 4
MEMO = memo_path("log", "date=2026-01-01/hour=00", DIGEST, ["k"], LEASE)
OWN = {
    MEMO: "memos",
    memo_path("log", "all", DIGEST, ["k"], COMPACTION + LEASE): "memos",
    f"memos/log/part/{HEX}-{LEASE}.memo": "memos",
    f"overlays/log/part/{HEX}-{LEASE}.memo": "overlays",
    f"artifacts/{DIGEST}.arrow": "artifacts",
    f"jobs/{LEASE}-000012.json": "job results",
    f"analysis/jobs/{LEASE}/{DIGEST}/0-00000-of-00001.gz": "analysis files",
    f"analysis/jobs/{LEASE}/{DIGEST}/MANIFEST": "analysis files",
    f"analysis/jobs/{LEASE}/done/{DIGEST}.json": "analysis files",
    f"analysis/tft-1.16.0-1.16.1-py3.11/{DIGEST}.json": "contributions",
    f"rows/log/{DIGEST}.rows": "rows by key",
    f"rows/log/.{DIGEST}.rows.17-140-0123abcd.tmp": "unfinished writes",
    f"jobs/.{LEASE}-000012.json.17-140-0123abcd.tmp": "unfinished writes",
    f"memos/log/part/.{HEX}-{LEASE}-{HEX}.memo.17-140-0123abcd.tmp": "unfinished writes",
}
FOREIGN = [
    "memos/notes.txt",
    f"memos/{HEX}-{LEASE}-{HEX}.memo",
    f"memos/log/{HEX}-{LEASE}-{HEX}.memo.bak",
    f"memos/log/{HEX}-{LEASE}-{HEX}.MEMO",
    f"memos/log/{HEX}-my-{HEX}.memo",
    f"memos/log/{HEX}-{LEASE}-{HEX}.memo\n",
    f"memos/../memos/log/{HEX}-{LEASE}-{HEX}.memo",
    f"memos/log/./{HEX}-{LEASE}-{HEX}.memo",
    f"memos//log/{HEX}-{LEASE}-{HEX}.memo",
    f"/memos/log/{HEX}-{LEASE}-{HEX}.memo",
    f"../memos/log/{HEX}-{LEASE}-{HEX}.memo",
    f"file:///memos/log/{HEX}-{LEASE}-{HEX}.memo",
    "memos/log/.notes.txt.17-140-0123abcd.tmp",
    "memos/log/.DS_Store",
    f"rows/log/{HEX}.rows",
    f"rows/{DIGEST}.rows",
    f"artifacts/old/{DIGEST}.arrow",
    f"artifacts/{DIGEST}.arrow.gz",
    "artifacts/vocabulary.arrow",
    "jobs/cron.json",
    f"jobs/mine/{LEASE}-000012.json",
    f"overlays/log/part/{HEX}-values.memo",
    f"analysis/jobs/{LEASE}/notebook.ipynb",
    f"analysis/jobs/mine/{DIGEST}/0-00000-of-00001.gz",
    f"raw/log/{HEX}-{LEASE}-{HEX}.memo",
    "",
]


@pytest.fixture
def home(warehouse: Warehouse, log: Path) -> Path:
    return Path(warehouse.config.home)


def put(path: Path, content: bytes = b"mine") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (0, 0))
    return path


def collect(warehouse: Warehouse) -> tuple[set[str], set[str]]:
    """Everything counts as old: what was deleted, and what was left and reported."""
    planned = collect_garbage(warehouse, leftover_secs=-1e6)
    done = collect_garbage(warehouse, dry_run=False, leftover_secs=-1e6)
    assert (planned.garbage, planned.foreign) == (done.garbage, done.foreign)
    return {one.path for one in done.garbage}, set(done.foreign)


@pytest.mark.parametrize("path", OWN)
def test_names_that_headrace_gives_are_known(path: str) -> None:
    assert kind_of(path) == OWN[path]


@pytest.mark.parametrize("path", FOREIGN)
def test_other_names_are_not(path: str) -> None:
    assert kind_of(path) is None


def test_every_file_that_a_warehouse_writes_is_known(warehouse: Warehouse, home: Path) -> None:
    submit_model(warehouse, model(inputs=2))
    work(warehouse)
    compact_memos(warehouse, CompactionPolicy(many_files=2), dry_run=False)
    listed = list_home(warehouse.storage)
    assert (len(listed.own["memos"]), listed.foreign) == (9, ())


def test_files_of_another_making_stay_and_are_reported(warehouse: Warehouse, home: Path) -> None:
    names = [
        name
        for name in FOREIGN
        if name and ".." not in name and ":" not in name and kind_of(os.path.normpath(name).lstrip("/")) is None
    ]
    mine = [put(home / name.lstrip("/")) for name in names]
    deleted, reported = collect(warehouse)
    assert deleted == set()
    assert all(path.read_bytes() == b"mine" for path in mine)
    assert reported == {str(path.relative_to(home)) for path in mine if "raw" not in path.parts}


def test_links_are_neither_followed_nor_deleted(warehouse: Warehouse, home: Path, tmp_path: Path) -> None:
    """A link to a file, to a folder with files of our names, to nothing, and one that leads back to the home."""
    outside = [put(tmp_path / "outside" / path) for path in OWN]
    inside = put(home / MEMO)
    places = {
        home / "memos/log/there": tmp_path / "outside/memos/log",
        home / "memos/linked": tmp_path / "outside/memos",
        home / f"jobs/{'f' * 32}-000001.json": tmp_path / f"outside/jobs/{LEASE}-000012.json",
        home / "overlays/log": tmp_path / "outside/overlays/log",
        home / "artifacts": tmp_path / "outside/artifacts",
        home / "analysis/jobs": tmp_path / "outside/analysis/jobs",
        home / "memos/loop": home / "memos",
        home / "memos/log/up": home,
        home / "overlays/nowhere": tmp_path / "nothing",
    }
    for link, target in places.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    deleted, reported = collect(warehouse)
    assert deleted == {MEMO}
    assert not inside.exists()
    assert all(path.read_bytes() == b"mine" for path in outside)
    assert all(link.is_symlink() for link in places)
    assert reported == {str(link.relative_to(home)) for link in places}


def test_only_the_name_of_a_hard_link_in_the_home_is_deleted(warehouse: Warehouse, home: Path, tmp_path: Path) -> None:
    mine = put(tmp_path / "mine")
    for name in (MEMO, "memos/log/mine"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(mine, home / name)
    assert collect(warehouse) == ({MEMO}, {"memos/log/mine"})
    assert (mine.read_bytes(), mine.stat().st_nlink) == (b"mine", 2)


def test_a_pipe_is_left(warehouse: Warehouse, home: Path) -> None:
    (home / MEMO).parent.mkdir(parents=True)
    os.mkfifo(home / MEMO)
    assert collect(warehouse) == (set(), {MEMO})


def test_a_home_that_is_a_link_is_collected(warehouse: Warehouse, home: Path, tmp_path: Path) -> None:
    home.rename(tmp_path / "elsewhere")
    home.symlink_to(tmp_path / "elsewhere")
    put(home / MEMO)
    assert collect(warehouse) == ({MEMO}, set())


def condemn_at(warehouse: Warehouse, path: str) -> None:
    """The catalog marks a file that Headrace did not make as unreferenced."""
    with warehouse.catalog.write() as connection:
        connection.execute(schema.memo_files.insert().values(
            path=path, checksum="c", rows=1, size_bytes=1, live_bytes=0, written_at=0, condemned_at=0))  # fmt: skip


def test_a_path_of_the_catalog_that_leads_elsewhere_is_not_deleted(
    warehouse: Warehouse, home: Path, tmp_path: Path
) -> None:
    mine = put(tmp_path / f"memos/log/{HEX}-{LEASE}-{HEX}.memo")
    kept = put(home / "memos/log/kept.memo")
    named = {f"../{mine.relative_to(tmp_path)}", str(mine), "memos/log/kept.memo", "memos/log", f"file://{mine}"}
    for path in named:
        condemn_at(warehouse, path)
    deleted, reported = collect(warehouse)
    assert (deleted, reported) == (set(), named)
    assert mine.exists()
    assert kept.exists()
    with warehouse.catalog.read() as connection:
        assert set(connection.execute(select(schema.memo_files.c.path)).scalars()) == named


def test_an_unreferenced_file_behind_a_link_stays_with_its_row(
    warehouse: Warehouse, home: Path, tmp_path: Path
) -> None:
    submit_model(warehouse, model(inputs=1))
    work(warehouse)
    (home / "memos").rename(tmp_path / "disk")
    (home / "memos").symlink_to(tmp_path / "disk")
    assert verify_warehouse(warehouse).findings == (), "reading goes through links"
    evict_component(warehouse, read_solution(warehouse, "ctr").inputs[0].fingerprint)
    assert collect(warehouse) == (set(), {"memos"})
    with warehouse.catalog.read() as connection:
        assert len(connection.execute(select(schema.memo_files)).all()) == 3
    (home / "memos").unlink()
    (tmp_path / "disk").rename(home / "memos")
    deleted, reported = collect(warehouse)
    assert (len(deleted), reported) == (3, set())


def test_compaction_leaves_files_of_another_place_alone(warehouse: Warehouse, home: Path, tmp_path: Path) -> None:
    submit_model(warehouse, model(inputs=2))
    work(warehouse)
    of = schema.memo_files.c
    with warehouse.catalog.write() as connection:
        for row in connection.execute(select(of.id, of.path)).all():
            moved = tmp_path / Path(row.path).name
            (home / row.path).rename(moved)
            connection.execute(update(schema.memo_files).where(of.id == row.id).values(path=f"../{moved.name}"))
    before = set(tmp_path.iterdir())
    assert compact_memos(warehouse, CompactionPolicy(many_files=2), dry_run=False).new_files == 0
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("path", ["../x", "/etc/hostname", "memos/../../x", "", ".", "a//b", "file:///x", "gs://b/x"])
def test_storage_deletes_nothing_outside_the_home(tmp_path: Path, path: str) -> None:
    storage = Storage(str(tmp_path / "home"))
    mine = put(tmp_path / "x")
    with pytest.raises(StorageError, match="must be in the home"):
        storage.delete(path)
    assert mine.exists()


def test_storage_deletes_through_no_link(tmp_path: Path) -> None:
    storage, mine = Storage(str(tmp_path / "home")), put(tmp_path / "mine/x")
    put(tmp_path / "home/y")
    (tmp_path / "home/folder").symlink_to(tmp_path / "mine")
    (tmp_path / "home/x").symlink_to(mine)
    assert [storage.delete(path) for path in ("folder/x", "x", "folder", "nothing/x", "y")] == [False] * 4 + [True]
    assert mine.exists()
    assert storage.delete(f"{storage.root}/y") is False
    with pytest.raises(StorageError):
        storage.delete("x/y/../z")


def test_a_folder_is_not_deleted_as_a_file(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    put(tmp_path / "folder/x")
    assert not storage.delete("folder")
    assert (tmp_path / "folder/x").exists()


@pytest.mark.parametrize("is_uri", [False, True])
def test_a_walk_names_what_it_does_not_enter(tmp_path: Path, is_uri: bool) -> None:
    storage = Storage(f"file://{tmp_path}" if is_uri else str(tmp_path))
    put(tmp_path / "m/a/x")
    put(tmp_path / "m/.x.1-2-0a.tmp")
    (tmp_path / "m/link").symlink_to(tmp_path / "m/a")
    walked = storage.walk("m")
    assert [file.path for file in walked.files] == ["m/.x.1-2-0a.tmp", "m/a/x"]
    assert walked.others == ("m/link",)
    assert storage.walk("nothing") == storage.walk("nothing/here")
    assert storage.delete("m/a/x")
