"""Tables that Spark wrote (tests/data/lakes): every version has the rows that Spark itself read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.warehouse.lakes.scenes import Follower
from warehouse.tables.history import table_history

TABLES = ("delta_spark", "iceberg_v2", "iceberg_v3")
#: What each version after the first changes: appended, updated and deleted rows.
CHANGES = {
    "delta_spark": [(0, 0, 3), (0, 2, 0), (3, 2, 0), (0, 0, 0)],
    "iceberg": [(0, 0, 4), (0, 2, 0), (3, 2, 0), (0, 0, 0)],
}


def spelled(rows: list[dict[str, Any]], third: str) -> list[list[Any]]:
    return sorted([row["id"], row["time"].replace(tzinfo=None).isoformat(), row[third], row["label"], row["tags"]] for row in rows)  # fmt: skip


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "tests" / "data" / "lakes" / request.param, tmp_path / request.param))


@pytest.mark.medium
def test_every_version_has_sparks_rows_and_rows_keep_their_places(table: Path, tmp_path: Path) -> None:
    expected = json.loads((table / "expected.json").read_text())
    follower = Follower.open(tmp_path / "home", str(table))
    changes, places = [], dict[int, tuple[str, int]]()
    # The newest names of columns are those of every version of Iceberg; each version of Delta has its own.
    for version, rows in expected.items():
        done = follower.refresh(version, keys=("id",))
        changes.append((done.appended_rows, done.updated_rows, done.deleted_rows))
        found = follower.placed_rows("id", "time", "query", "label", "tags")
        assert spelled([row for _, row in found], "query") == rows
        now = {row["id"]: place for place, row in found}
        assert all(now[one] == place for one, place in places.items() if one in now)
        places = now
    assert changes[1:] == CHANGES[table.name.partition("_v")[0]]
    with follower.warehouse.catalog.read() as connection:
        kinds = [one.kind for one in table_history(connection, "log")]
    assert kinds == ["register", "delete", "overlay", "overlay", "append"]


def test_a_renamed_column_has_its_newest_name(tmp_path: Path) -> None:
    lake = shutil.copytree(ROOT / "tests" / "data" / "lakes" / "delta_spark", tmp_path / "lake")
    follower = Follower.open(tmp_path / "home", str(lake))
    follower.refresh()
    expected = json.loads((Path(lake) / "expected.json").read_text())
    newest = expected[max(expected, key=int)]
    assert spelled(follower.rows("id", "time", "question", "label", "tags"), "question") == newest
