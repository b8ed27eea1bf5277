"""Homes that are none: nothing is created, and the nearest warehouse is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from transforms.errors import InputError
from warehouse import Warehouse, WarehouseConfig
from warehouse.homes import check_exists, make_home, nearest_home


def made(home: Path) -> Path:
    Warehouse.open(WarehouseConfig(str(home))).close()
    return home


def test_a_warehouse_exists_by_its_catalog(tmp_path: Path) -> None:
    check_exists(WarehouseConfig(str(made(tmp_path / "home"))))
    check_exists(WarehouseConfig(f"file://{tmp_path}/home"))
    (tmp_path / "empty").mkdir()
    for home in ("empty", "absent", "home/runs"):
        with pytest.raises(InputError, match="must be the folder of a warehouse"):
            check_exists(WarehouseConfig(str(tmp_path / home)))
    assert not (tmp_path / "absent").exists()
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_catalog_elsewhere_must_exist_as_well(tmp_path: Path) -> None:
    home, catalog = tmp_path / "home", tmp_path / "elsewhere" / "catalog.db"
    config = WarehouseConfig(str(home), f"sqlite:///{catalog}")
    with pytest.raises(InputError, match="must be the folder of a warehouse"):
        check_exists(config)
    make_home(config)
    with pytest.raises(InputError, match="the catalog must exist"):
        check_exists(config)
    assert not catalog.parent.exists()
    Warehouse.open(config).close()
    check_exists(config)


def test_homes_in_buckets_and_catalogs_of_servers_are_not_asked(tmp_path: Path) -> None:
    """They need not be reachable yet: a worker waits for its server."""
    check_exists(WarehouseConfig("gs://bucket/home", "postgresql://user@nowhere.invalid/database"))
    check_exists(WarehouseConfig(str(tmp_path), "postgresql://user@nowhere.invalid/database"))
    with pytest.raises(InputError, match="must be the folder of a warehouse"):
        check_exists(WarehouseConfig(str(tmp_path / "absent"), "postgresql://user@nowhere.invalid/database"))
    make_home(WarehouseConfig("gs://bucket/home", "postgresql://user@nowhere.invalid/database"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("there", "given", "nearest"),
    [
        (["warehouse"], "warehuose", "warehouse"),
        (["search", "shopping"], "serach", "search"),
        (["warehouse"], "entirely-different", None),
        ([".headrace"], "project/deep/.headrace", ".headrace"),
        ([".headrace", "project/.headrace"], "project/deep/.headrace", "project/.headrace"),
        (["home"], "home/runs/deep", "home"),
        ([], ".headrace", None),
    ],
)
def test_the_nearest_home_is_beside_it_or_above(
    tmp_path: Path, there: list[str], given: str, nearest: str | None
) -> None:
    for name in there:
        made(tmp_path / name)
    found = nearest_home(tmp_path / given)
    assert found == (None if nearest is None else tmp_path / nearest)


def test_a_folder_that_is_no_warehouse_is_not_suggested(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    assert nearest_home(tmp_path / "warehuose") is None
