"""The public names of ``warehouse``, and its light import."""

from __future__ import annotations

import subprocess
import sys

import warehouse
from tests.warehouse.scenes import REPOSITORY

SURFACE = """
LABEL Change Client Collected ColumnSchema Compacted CompactionPolicy ComponentQuery ComponentRow Decision
EvictionPlan EvictionRequest Failure Finding Fragment LeasedTask Manifest MemoFile MemoWritten Pin QuarantineChange
QueueDepth ReadSolution Registration Retirement SearchResult Status Storage Submission Table TableVersion TaskDetail TaskGroup
TaskQuery TaskRow Verified Warehouse WarehouseConfig append_rows collect_garbage commit_memos
compact_memos damage_recorder delete_rows drop_tasks explain_model fail_tasks fix_columns get_component get_task
heartbeat heartbeat_pin lease_tasks list_clients list_models list_tables live_mask live_pins mark_damaged memo_key
memo_path overlay_columns pin_solution pinned_solution plan_eviction quarantine_groups quarantine_tasks queue_depths
queue_missing read_fragment read_memo_file read_raw read_solution register_table release_pin release_tasks
retire_model retry_tasks run_eviction search_components set_client settle_storage status submit_model table_history task_sample verify_warehouse
write_memo_file
"""


def test_surface_is_pinned() -> None:
    assert warehouse.__all__ == sorted(SURFACE.split())


def test_every_name_loads() -> None:
    for name in warehouse.__all__:
        assert getattr(warehouse, name) is not None
    assert dir(warehouse) == warehouse.__all__


def test_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(warehouse, "nothing_of_this_name")


def test_importing_is_light() -> None:
    code = (
        "import sys, warehouse, warehouse.reading.reader, warehouse.solution.solution, warehouse.storage.storage\n"
        "heavy = {'tensorflow', 'apache_beam', 'pandas', 'sqlalchemy', 'alembic', 'keras'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


def test_opening_loads_neither_tensorflow_nor_beam_nor_pandas() -> None:
    code = (
        "import sys, tempfile\n"
        "from warehouse import *\n"
        "Warehouse.open(WarehouseConfig(tempfile.mkdtemp())).close()\n"
        "heavy = {'tensorflow', 'apache_beam', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)
