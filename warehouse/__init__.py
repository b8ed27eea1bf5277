"""Tables, memos, the catalog, matching and client queues.

These are all public names of the package. They are loaded on first use, so a process that only reads columns
(``read_fragment``) does not load the database toolkit.
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
    from warehouse.config import WarehouseConfig as WarehouseConfig
    from warehouse.eviction.evict import plan_eviction as plan_eviction
    from warehouse.eviction.evict import run_eviction as run_eviction
    from warehouse.eviction.evict import settle_storage as settle_storage
    from warehouse.eviction.plan import EvictionPlan as EvictionPlan
    from warehouse.eviction.plan import EvictionRequest as EvictionRequest
    from warehouse.files.column_files import MemoFile as MemoFile
    from warehouse.files.memo_file import memo_path as memo_path
    from warehouse.files.memo_file import read_memo_file as read_memo_file
    from warehouse.files.memo_file import write_memo_file as write_memo_file
    from warehouse.maintenance.compact import Compacted as Compacted
    from warehouse.maintenance.compact import compact_memos as compact_memos
    from warehouse.maintenance.compaction import CompactionPolicy as CompactionPolicy
    from warehouse.maintenance.findings import Finding as Finding
    from warehouse.maintenance.gc import Collected as Collected
    from warehouse.maintenance.gc import collect_garbage as collect_garbage
    from warehouse.maintenance.verify import Verified as Verified
    from warehouse.maintenance.verify import verify_warehouse as verify_warehouse
    from warehouse.matching.decision import Decision as Decision
    from warehouse.matching.explain import explain_model as explain_model
    from warehouse.matching.solve import read_solution as read_solution
    from warehouse.matching.submit import Submission as Submission
    from warehouse.matching.submit import queue_missing as queue_missing
    from warehouse.matching.submit import submit_model as submit_model
    from warehouse.memos.memos import damage_recorder as damage_recorder
    from warehouse.memos.memos import mark_damaged as mark_damaged
    from warehouse.models.retire import Retirement as Retirement
    from warehouse.models.retire import retire_model as retire_model
    from warehouse.overview import Status as Status
    from warehouse.overview import list_models as list_models
    from warehouse.overview import list_tables as list_tables
    from warehouse.overview import status as status
    from warehouse.quarantine.changes import QuarantineChange as QuarantineChange
    from warehouse.quarantine.changes import drop_tasks as drop_tasks
    from warehouse.quarantine.changes import retry_tasks as retry_tasks
    from warehouse.quarantine.listing import TaskDetail as TaskDetail
    from warehouse.quarantine.listing import TaskGroup as TaskGroup
    from warehouse.quarantine.listing import TaskRow as TaskRow
    from warehouse.quarantine.listing import get_task as get_task
    from warehouse.quarantine.listing import quarantine_groups as quarantine_groups
    from warehouse.quarantine.listing import quarantine_tasks as quarantine_tasks
    from warehouse.quarantine.listing import task_sample as task_sample
    from warehouse.quarantine.query import TaskQuery as TaskQuery
    from warehouse.queue.clients import Client as Client
    from warehouse.queue.clients import list_clients as list_clients
    from warehouse.queue.clients import set_client as set_client
    from warehouse.queue.commit import commit_memos as commit_memos
    from warehouse.queue.depths import QueueDepth as QueueDepth
    from warehouse.queue.depths import queue_depths as queue_depths
    from warehouse.queue.fail import fail_tasks as fail_tasks
    from warehouse.queue.failures import Failure as Failure
    from warehouse.queue.lease import heartbeat as heartbeat
    from warehouse.queue.lease import lease_tasks as lease_tasks
    from warehouse.queue.lease import release_tasks as release_tasks
    from warehouse.queue.tasks import LeasedTask as LeasedTask
    from warehouse.queue.tasks import MemoWritten as MemoWritten
    from warehouse.reading.pinned import pinned_solution as pinned_solution
    from warehouse.reading.pins import Pin as Pin
    from warehouse.reading.pins import heartbeat_pin as heartbeat_pin
    from warehouse.reading.pins import live_pins as live_pins
    from warehouse.reading.pins import pin_solution as pin_solution
    from warehouse.reading.pins import release_pin as release_pin
    from warehouse.reading.reader import LABEL as LABEL
    from warehouse.reading.reader import read_fragment as read_fragment
    from warehouse.search.components import ComponentRow as ComponentRow
    from warehouse.search.query import ComponentQuery as ComponentQuery
    from warehouse.search.search import SearchResult as SearchResult
    from warehouse.search.search import get_component as get_component
    from warehouse.search.search import search_components as search_components
    from warehouse.solution.solution import ReadSolution as ReadSolution
    from warehouse.storage.storage import Storage as Storage
    from warehouse.tables.history import TableVersion as TableVersion
    from warehouse.tables.history import table_history as table_history
    from warehouse.tables.overlays import live_mask as live_mask
    from warehouse.tables.raw import read_raw as read_raw
    from warehouse.tables.register import Registration as Registration
    from warehouse.tables.register import register_table as register_table
    from warehouse.tables.table import ColumnSchema as ColumnSchema
    from warehouse.tables.table import Fragment as Fragment
    from warehouse.tables.table import Manifest as Manifest
    from warehouse.tables.table import Table as Table
    from warehouse.tables.table import memo_key as memo_key
    from warehouse.warehouse import Warehouse as Warehouse

__getattr__, __dir__, __all__ = lazy_exports(__name__)
