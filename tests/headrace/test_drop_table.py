"""``headrace table drop``, for imported tables and others."""

from __future__ import annotations

import shutil

import pytest

SCHEMA = """{"format": "csv", "header": true,
 "columns": [{"name": "id", "type": "int64"}, {"name": "clicked", "type": "bool"}, {"name": "at", "type": "timestamp"}],
 "time": {"column": "at"}}"""


@pytest.fixture
def imported(cli, tmp_path):
    lines = ["id,clicked,at", *(f"{i},{i % 2},2017-07-02T0{i % 3}:00" for i in range(12)), "x,1,2017-07-02T00:00"]
    (tmp_path / "clicks.csv").write_text("\n".join(lines))
    (tmp_path / "schema.json").write_text(SCHEMA)
    command = ("table", "import", "clicks", tmp_path / "clicks.csv", "--schema", tmp_path / "schema.json",
               "--max-reject-share", "0.5")  # fmt: skip
    cli(*command)
    return command


def test_a_dry_run_shows_what_is_removed(cli, imported, tmp_path):
    dry = cli("table", "drop", "clicks", "--delete-files")
    assert "would drop table clicks, 1 version" in dry.out
    assert "12 rows in 3 partitions" in dry.out
    assert "nothing was changed; next: the same command with --yes" in dry.out
    assert cli("table", "drop", "clicks", "--json").json["deleted_files"] == 0
    assert "--delete-files deletes them" in cli("table", "drop", "clicks").out
    assert cli("table", "ls", "--json").json["tables"][0]["rows"] == 12


def test_an_imported_table_is_dropped_with_its_files_and_imported_again(cli, imported, tmp_path):
    home = tmp_path / "home"
    done = cli("table", "drop", "clicks", "--yes", "--delete-files")
    assert "dropped table clicks" in done.out
    assert "were deleted" in done.out
    assert list((home / "tables").iterdir()) == []
    assert not (home / "rejects/clicks").exists()
    assert "no such table" in cli("table", "show", "clicks", status=4).err
    assert cli(*imported, "--json").json["rows"] == 12
    assert [one["kind"] for one in cli("table", "history", "clicks", "--json").json["versions"]] == [
        "register", "drop", "register"
    ]  # fmt: skip


def test_without_the_option_the_files_stay_and_are_registered_again(cli, imported, tmp_path):
    cli("table", "drop", "clicks", "--yes")
    again = cli(*imported, "--json").json
    assert (again["rows"], again["registered"]["rows"]) == (0, 12)


@pytest.mark.parametrize("left", ["everything", "journals"])
def test_a_drop_that_was_killed_is_finished_by_the_same_command(cli, imported, tmp_path, left):
    cli("table", "drop", "clicks", "--yes")
    if left == "journals":
        shutil.rmtree(tmp_path / "home/tables/clicks")
        (tmp_path / "home/tables/.dropped-0").mkdir()
    assert "would delete" in cli("table", "drop", "clicks", "--delete-files").out
    assert "deleted" in cli("table", "drop", "clicks", "--delete-files", "--yes").out
    assert list((tmp_path / "home/tables").iterdir()) == []
    assert "no such table" in cli("table", "drop", "clicks", "--delete-files", "--yes", status=4).err
    assert cli(*imported, "--json").json["rows"] == 12


def test_an_import_after_only_the_folder_went_imports_everything(cli, imported, tmp_path):
    cli("table", "drop", "clicks", "--yes")
    shutil.rmtree(tmp_path / "home/tables/clicks")
    assert cli(*imported, "--json").json["registered"]["rows"] == 12


def test_a_table_outside_the_home_keeps_its_files(cli, small_log, models_file):
    cli("table", "add", "log", small_log, "--time-column", "time")
    cli("model", "submit", models_file, "--table", "log")
    assert "never" not in cli("table", "drop", "log", "--delete-files", "--yes", status=2).out
    dry = cli("table", "drop", "log")
    assert "first, second are retired" in dry.out
    assert "models, tasks or jobs read it" in dry.out
    assert "live model first, live model second" in cli("table", "drop", "log", "--yes", status=5).err
    done = cli("table", "drop", "log", "--yes", "--force", "--why", "a trial", "--json").json
    assert done["models"] == ["first", "second"]
    assert done["done"]
    assert len(list(small_log.rglob("*.parquet"))) == 4
    assert cli("verify").out
