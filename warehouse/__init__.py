"""What is stored and what is known: tables, memos, the catalog, matching, client queues.

This is the room's whole public surface. Names are loaded when they are first used, so that a process that only reads
columns (``read_fragment``) does not load the database toolkit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from warehouse.changes.append import append_rows as append_rows
    from warehouse.changes.deletion import delete_rows as delete_rows
    from warehouse.changes.outcome import Change as Change
    from warehouse.changes.overlay import fix_columns as fix_columns
    from warehouse.changes.overlay import overlay_columns as overlay_columns
    from warehouse.clients import Client as Client
    from warehouse.clients import list_clients as list_clients
    from warehouse.clients import set_client as set_client
    from warehouse.compact import Compacted as Compacted
    from warehouse.compact import compact_memos as compact_memos
    from warehouse.compaction import CompactionPolicy as CompactionPolicy
    from warehouse.component_rows import ComponentRow as ComponentRow
    from warehouse.config import WarehouseConfig as WarehouseConfig
    from warehouse.decision import Decision as Decision
    from warehouse.evict import plan_eviction as plan_eviction
    from warehouse.evict import run_eviction as run_eviction
    from warehouse.eviction_plan import EvictionPlan as EvictionPlan
    from warehouse.eviction_plan import EvictionRequest as EvictionRequest
    from warehouse.explain import explain_model as explain_model
    from warehouse.failures import Failure as Failure
    from warehouse.files.column_files import MemoFile as MemoFile
    from warehouse.findings import Finding as Finding
    from warehouse.gc import Collected as Collected
    from warehouse.gc import collect_garbage as collect_garbage
    from warehouse.history import TableVersion as TableVersion
    from warehouse.history import table_history as table_history
    from warehouse.memo_file import memo_path as memo_path
    from warehouse.memo_file import read_memo_file as read_memo_file
    from warehouse.memo_file import write_memo_file as write_memo_file
    from warehouse.memos import damage_recorder as damage_recorder
    from warehouse.memos import mark_damaged as mark_damaged
    from warehouse.overlay_files import live_mask as live_mask
    from warehouse.pinned import pinned_solution as pinned_solution
    from warehouse.pins import Pin as Pin
    from warehouse.pins import heartbeat_pin as heartbeat_pin
    from warehouse.pins import live_pins as live_pins
    from warehouse.pins import pin_solution as pin_solution
    from warehouse.pins import release_pin as release_pin
    from warehouse.quarantine import TaskDetail as TaskDetail
    from warehouse.quarantine import TaskGroup as TaskGroup
    from warehouse.quarantine import TaskRow as TaskRow
    from warehouse.quarantine import get_task as get_task
    from warehouse.quarantine import quarantine_groups as quarantine_groups
    from warehouse.quarantine import quarantine_tasks as quarantine_tasks
    from warehouse.quarantine import task_sample as task_sample
    from warehouse.quarantine_changes import QuarantineChange as QuarantineChange
    from warehouse.quarantine_changes import drop_tasks as drop_tasks
    from warehouse.quarantine_changes import retry_tasks as retry_tasks
    from warehouse.quarantine_query import TaskQuery as TaskQuery
    from warehouse.queue.commit import commit_memos as commit_memos
    from warehouse.queue.depths import QueueDepth as QueueDepth
    from warehouse.queue.depths import queue_depths as queue_depths
    from warehouse.queue.fail import fail_tasks as fail_tasks
    from warehouse.queue.lease import heartbeat as heartbeat
    from warehouse.queue.lease import lease_tasks as lease_tasks
    from warehouse.queue.lease import release_tasks as release_tasks
    from warehouse.queue.tasks import LeasedTask as LeasedTask
    from warehouse.queue.tasks import MemoWritten as MemoWritten
    from warehouse.reader import LABEL as LABEL
    from warehouse.reader import read_fragment as read_fragment
    from warehouse.register import Registration as Registration
    from warehouse.register import register_table as register_table
    from warehouse.retire import Retirement as Retirement
    from warehouse.retire import retire_model as retire_model
    from warehouse.search import SearchResult as SearchResult
    from warehouse.search import get_component as get_component
    from warehouse.search import search_components as search_components
    from warehouse.search_query import ComponentQuery as ComponentQuery
    from warehouse.solution.solution import ReadSolution as ReadSolution
    from warehouse.solving import read_solution as read_solution
    from warehouse.statistics import Status as Status
    from warehouse.statistics import list_models as list_models
    from warehouse.statistics import list_tables as list_tables
    from warehouse.statistics import status as status
    from warehouse.storage import Storage as Storage
    from warehouse.submit import Submission as Submission
    from warehouse.submit import queue_missing as queue_missing
    from warehouse.submit import submit_model as submit_model
    from warehouse.table import ColumnSchema as ColumnSchema
    from warehouse.table import Fragment as Fragment
    from warehouse.table import Manifest as Manifest
    from warehouse.table import Table as Table
    from warehouse.table import memo_key as memo_key
    from warehouse.tables.raw import read_raw as read_raw
    from warehouse.verify import Verified as Verified
    from warehouse.verify import verify_warehouse as verify_warehouse
    from warehouse.warehouse import Warehouse as Warehouse

__getattr__, __dir__, __all__ = lazy_exports(__name__)
