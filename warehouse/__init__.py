"""What is stored and what is known: tables, memos, the catalog, matching, client queues.

This is the room's whole public surface. Names are loaded when they are first used, so that a process that only reads
columns (``read_fragment``) does not load the database toolkit.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warehouse.changes.append import append_rows
    from warehouse.changes.deletion import delete_rows
    from warehouse.changes.outcome import Change
    from warehouse.changes.overlay import fix_columns, overlay_columns
    from warehouse.clients import Client, list_clients, set_client
    from warehouse.compact import Compacted, compact_memos
    from warehouse.compaction import CompactionPolicy
    from warehouse.component_rows import ComponentRow
    from warehouse.config import WarehouseConfig
    from warehouse.decision import Decision
    from warehouse.evict import plan_eviction, run_eviction
    from warehouse.eviction_plan import EvictionPlan, EvictionRequest
    from warehouse.explain import explain_model
    from warehouse.failures import Failure
    from warehouse.findings import Finding
    from warehouse.gc import Collected, collect_garbage
    from warehouse.history import TableVersion, table_history
    from warehouse.memo_file import MemoFile, memo_path, read_memo_file, write_memo_file
    from warehouse.memos import damage_recorder, mark_damaged
    from warehouse.overlay_files import live_mask
    from warehouse.pinned import pinned_solution
    from warehouse.pins import Pin, heartbeat_pin, live_pins, pin_solution, release_pin
    from warehouse.quarantine import (
        TaskDetail,
        TaskGroup,
        TaskRow,
        get_task,
        quarantine_groups,
        quarantine_tasks,
        task_sample,
    )
    from warehouse.quarantine_changes import QuarantineChange, drop_tasks, retry_tasks
    from warehouse.quarantine_query import TaskQuery
    from warehouse.queue import (
        LeasedTask,
        MemoWritten,
        QueueDepth,
        commit_memo,
        commit_memos,
        fail_task,
        fail_tasks,
        heartbeat,
        lease_tasks,
        queue_depths,
        release_tasks,
    )
    from warehouse.reader import LABEL, read_fragment, read_raw
    from warehouse.register import Registration, register_table
    from warehouse.retire import Retirement, retire_model
    from warehouse.search import SearchResult, get_component, search_components
    from warehouse.search_query import ComponentQuery
    from warehouse.solution import ReadSolution, read_solution
    from warehouse.statistics import Status, list_models, list_tables, status
    from warehouse.storage import Storage
    from warehouse.submit import Submission, queue_missing, submit_model
    from warehouse.table import ColumnSchema, Fragment, Manifest, Table, memo_key
    from warehouse.verify import Verified, verify_warehouse
    from warehouse.warehouse import Warehouse

_HOMES = {
    "clients": ("Client", "list_clients", "set_client"),
    "quarantine": (
        "TaskDetail", "TaskGroup", "TaskRow", "get_task", "quarantine_groups", "quarantine_tasks", "task_sample",
    ),
    "quarantine_changes": ("QuarantineChange", "drop_tasks", "retry_tasks"),
    "quarantine_query": ("TaskQuery",),
    "compact": ("Compacted", "compact_memos"),
    "compaction": ("CompactionPolicy",),
    "findings": ("Finding",),
    "gc": ("Collected", "collect_garbage"),
    "pinned": ("pinned_solution",),
    "pins": ("Pin", "heartbeat_pin", "live_pins", "pin_solution", "release_pin"),
    "verify": ("Verified", "verify_warehouse"),
    "changes.append": ("append_rows",),
    "changes.deletion": ("delete_rows",),
    "changes.outcome": ("Change",),
    "changes.overlay": ("fix_columns", "overlay_columns",),
    "history": ("TableVersion", "table_history",),
    "overlay_files": ("live_mask",),
    "component_rows": ("ComponentRow",),
    "config": ("WarehouseConfig",),
    "decision": ("Decision",),
    "evict": ("plan_eviction", "run_eviction"),
    "eviction_plan": ("EvictionPlan", "EvictionRequest"),
    "explain": ("explain_model",),
    "failures": ("Failure",),
    "memo_file": ("MemoFile", "memo_path", "read_memo_file", "write_memo_file"),
    "memos": ("damage_recorder", "mark_damaged"),
    "queue": (
        "LeasedTask", "MemoWritten", "QueueDepth", "commit_memo", "commit_memos", "fail_task", "fail_tasks", "heartbeat",
        "lease_tasks", "queue_depths", "release_tasks",
    ),
    "reader": ("LABEL", "read_fragment", "read_raw"),
    "register": ("Registration", "register_table"),
    "retire": ("Retirement", "retire_model"),
    "search": ("SearchResult", "get_component", "search_components"),
    "search_query": ("ComponentQuery",),
    "solution": ("ReadSolution", "read_solution"),
    "statistics": ("Status", "list_models", "list_tables", "status"),
    "storage": ("Storage",),
    "submit": ("Submission", "queue_missing", "submit_model"),
    "table": ("ColumnSchema", "Fragment", "Manifest", "Table", "memo_key"),
    "warehouse": ("Warehouse",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "LABEL",
    "Change",
    "Client",
    "Collected",
    "ColumnSchema",
    "Compacted",
    "CompactionPolicy",
    "ComponentQuery",
    "ComponentRow",
    "Decision",
    "EvictionPlan",
    "EvictionRequest",
    "Failure",
    "Finding",
    "Fragment",
    "LeasedTask",
    "Manifest",
    "MemoFile",
    "MemoWritten",
    "Pin",
    "QuarantineChange",
    "QueueDepth",
    "ReadSolution",
    "Registration",
    "Retirement",
    "SearchResult",
    "Status",
    "Storage",
    "Submission",
    "Table",
    "TableVersion",
    "TaskDetail",
    "TaskGroup",
    "TaskQuery",
    "TaskRow",
    "Verified",
    "Warehouse",
    "WarehouseConfig",
    "append_rows",
    "collect_garbage",
    "commit_memo",
    "commit_memos",
    "compact_memos",
    "damage_recorder",
    "delete_rows",
    "drop_tasks",
    "explain_model",
    "fail_task",
    "fail_tasks",
    "fix_columns",
    "get_component",
    "get_task",
    "heartbeat",
    "heartbeat_pin",
    "lease_tasks",
    "list_clients",
    "list_models",
    "list_tables",
    "live_mask",
    "live_pins",
    "mark_damaged",
    "memo_key",
    "memo_path",
    "overlay_columns",
    "pin_solution",
    "pinned_solution",
    "plan_eviction",
    "quarantine_groups",
    "quarantine_tasks",
    "queue_depths",
    "queue_missing",
    "read_fragment",
    "read_memo_file",
    "read_raw",
    "read_solution",
    "register_table",
    "release_pin",
    "release_tasks",
    "retire_model",
    "retry_tasks",
    "run_eviction",
    "search_components",
    "set_client",
    "status",
    "submit_model",
    "table_history",
    "task_sample",
    "verify_warehouse",
    "write_memo_file",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
