"""Each rule of the schema refuses a row that violates it, on each database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from sqlalchemy import CheckConstraint, Connection, Table, insert, update
from sqlalchemy.exc import IntegrityError

from warehouse.catalog import schema
from warehouse.catalog.catalog import Catalog
from warehouse.lakes.placement import PartitionBy
from warehouse.scheduling.task_states import MemoState, TaskState
from warehouse.tables.versions import TableChangeKind

_A, _B = "a" * 64, "b" * 64

#: One row of each table that has a rule, and of those that it refers to; tasks and memos of every state are made of them.
ROWS: list[tuple[Table, dict[str, Any]]] = [
    (schema.tables, {"name": "t", "root": "/", "columns": [], "version": 1, "registered_at": 0.0}),
    (schema.files, {"table_name": "t", "path": "p", "partition": "h", "size_bytes": 0, "mtime_ns": -1}),
    (schema.fragments, {"id": 1, "fragment_id": _A, "table_name": "t", "partition": "h", "path": "p", "row_groups": [0],
                        "rows": 0, "size_bytes": 0, "digests": {}}),
    (schema.manifests, {"id": 1, "table_name": "t", "partition": "h", "version": 1, "table_version": 1, "start_at": 0.0,
                        "end_at": 1.0, "current": True}),
    (schema.manifests, {"id": 2, "table_name": "t", "partition": "h", "version": 2, "table_version": 2, "start_at": 0.0,
                        "end_at": 1.0, "current": False}),
    (schema.manifests, {"id": 3, "table_name": "t", "partition": "h", "version": 3, "table_version": 3, "start_at": 0.0,
                        "end_at": 1.0, "current": False}),
    (schema.manifest_fragments, {"manifest": 1, "position": 0, "fragment": 1}),
    (schema.manifest_fragments, {"manifest": 1, "position": 1, "fragment": 1, "deletions": "d",
                                 "deletions_checksum": _A, "deleted_rows": 0}),
    (schema.merged_fragments, {"fragment": 1, "merged": 1, "position": 0, "first_row": 0}),
    (schema.changes, {"id": 1, "table_name": "t", "table_version": 1, "kind": "register", "columns": [], "rows": 0,
                      "fragments": 0, "source": "", "why": "", "created_at": 0.0}),
    (schema.lakes, {"table_name": "t", "location": "l", "format": "delta", "lake_id": "i", "version": "0", "partition_by": "day",
                    "time_unit": "", "keys": []}),
    (schema.kafka_topics, {"table_name": "t", "brokers": "a:1", "topic": "c", "topic_id": "", "start": "latest"}),
    (schema.kafka_offsets, {"table_name": "t", "table_version": 0, "partition": 0, "first_offset": 0, "next_offset": 0}),
    (schema.clients, {"name": "c", "served": 0, "leased_tasks": 0}),
    (schema.components, {"fingerprint": _A, "shape": _A, "expression": "e", "document": {}, "created_at": 0.0}),
    *((schema.models, {"id": version, "name": "m", "version": version, "client": "c", "priority": -1, "label": "l",
                       "table_name": "t", "table_version": -1, "digest": _A, "live": version == 3, "submitted_at": 0.0})
      for version in (1, 2, 3)),
    (schema.submissions, {"id": 1, "model": 1, "submitted_at": 0.0, "unchanged": False, "hits": 0, "shared": 0, "queued": 0,
                          "failed": 0}),
    (schema.memo_files, {"id": 1, "path": "memos/x", "checksum": _A, "rows": 0, "size_bytes": 0, "live_bytes": 0,
                         "written_at": 0.0}),
    (schema.policy_accounts, {"table_name": "t", "settled_at": 0.0, "own_secs": 0.0, "all_secs": 0.0, "none_secs": 0.0,
                              "scale_secs": 0.0}),
    (schema.feature_statistics, {"fingerprint": "a", "version": 1, "document": {}, "recorded_at": 0.0}),
    (schema.feature_samples, {"run": "a", "host": "a", "epoch": 0, "recorded_at": 0.0}),
    (schema.evictions, {"id": 1, "evicted_at": 0.0, "why": "w", "who": "", "request": "r", "plan": "p", "memos": 0, "size_bytes": 0}),
    (schema.queue_minutes, {"minute": 1, "workers": 0}),
    (schema.joined_columns, {"table_name": "t", "column_name": "j", "other_table": "t", "arrow_type": "int64", "document": {},
                             "created_at": 0.0}),
    (schema.joined_views, {"view": _A, "table_name": "t", "column_name": "j", "checksum": _A, "other_version": 1, "computed_at": 0.0,
                           "events": 0, "cause": ""}),
    (schema.time_ranges, {"digest": _A, "first_micros": -1, "last_micros": 1}),
    (schema.queue_samples, {"minute": 1, "client": "c", "queued": 0, "leased": 0, "failed": 0}),
]  # fmt: skip
_MEMO = {"fingerprint": _A, "fragment": 1, "created_at": 0.0, "changed_at": 0.0, "queued_by": 1, "cause_code": "never_seen",
         "cause": ""}  # fmt: skip
_STORED = {"file": 1, "rows": 0, "size_bytes": 0, "secs": 0.0}
_TASK = {"fragment": 1, "table_name": "t", "partition": "h", "fence": 1, "attempts": 1, "losses": 1, "not_before": 0.0, "created_at": 0.0,
         "changed_at": 0.0}  # fmt: skip
_LEASE = {"worker": "w", "lease": "f" * 32, "lease_until": 1.0}
#: The row of each task, but for a done one, which has none, with its memo.
TASKS: dict[TaskState, tuple[MemoState, dict[str, Any], dict[str, Any]]] = {
    TaskState.QUEUED: (MemoState.PENDING, {}, {}),
    TaskState.LEASED: (MemoState.PENDING, _LEASE, {}),
    TaskState.DONE: (MemoState.READY, {}, _STORED),
    TaskState.FAILED: (MemoState.FAILED, {"error": "e"}, {}),
    TaskState.DROPPED: (MemoState.DROPPED, {}, {}),
}

#: The rule, and an update of the rows named by the condition that breaks it.
BROKEN: list[tuple[str, Table, dict[str, Any], dict[str, Any]]] = [
    ("ck_files_not_negative", schema.files, {}, {"size_bytes": -1}),
    ("ck_queue_minutes_not_negative", schema.queue_minutes, {}, {"workers": -1}),
    *(("ck_queue_samples_not_negative", schema.queue_samples, {}, {name: -1}) for name in ("queued", "leased", "failed")),
    ("ck_fragments_not_negative", schema.fragments, {}, {"rows": -1}),
    ("ck_fragments_not_negative", schema.fragments, {}, {"size_bytes": -1}),
    ("uq_manifests_current", schema.manifests, {"id": 2}, {"current": True}),
    ("ck_manifest_fragments_deletions", schema.manifest_fragments, {"position": 0}, {"deletions": "d"}),
    ("ck_manifest_fragments_deletions", schema.manifest_fragments, {"position": 0}, {"deletions_checksum": _A}),
    ("ck_manifest_fragments_deletions", schema.manifest_fragments, {"position": 1}, {"deleted_rows": None}),
    ("ck_manifest_fragments_not_negative", schema.manifest_fragments, {"position": 1}, {"deleted_rows": -1}),
    ("ck_manifest_fragments_not_negative", schema.manifest_fragments, {"position": 1}, {"position": -1}),
    ("ck_merged_fragments_not_negative", schema.merged_fragments, {}, {"position": -1}),
    ("ck_merged_fragments_not_negative", schema.merged_fragments, {}, {"first_row": -1}),
    ("ck_changes_kind", schema.changes, {}, {"kind": "moved"}),
    ("ck_lakes_format", schema.lakes, {}, {"format": "hudi"}),
    ("ck_lakes_partition_by", schema.lakes, {}, {"partition_by": "week"}),
    ("ck_kafka_topics_start", schema.kafka_topics, {}, {"start": "middle"}),
    ("ck_kafka_offsets_order", schema.kafka_offsets, {}, {"next_offset": -1}),
    *(("ck_kafka_offsets_not_negative", schema.kafka_offsets, {}, {name: -1}) for name in ("table_version", "partition", "first_offset")),
    ("ck_policy_accounts_hedged", schema.policy_accounts, {}, {"hedged_all_secs": 0.0}),
    ("ck_changes_not_negative", schema.changes, {}, {"rows": -1}),
    ("ck_changes_not_negative", schema.changes, {}, {"fragments": -1}),
    ("ck_clients_not_negative", schema.clients, {}, {"served": -1}),
    ("ck_clients_not_negative", schema.clients, {}, {"leased_tasks": -1}),
    ("ck_clients_shares", schema.clients, {}, {"weight": 0.0}),
    ("ck_clients_shares", schema.clients, {}, {"deadline_secs": 0.0}),
    ("uq_models_live", schema.models, {"version": 1}, {"live": True}),
    ("ck_models_not_negative", schema.models, {"version": 1}, {"classes": -1}),
    *(("ck_submissions_not_negative", schema.submissions, {}, {name: -1}) for name in ("hits", "shared", "queued", "failed")),
    *(("ck_memo_files_not_negative", schema.memo_files, {}, {name: -1}) for name in ("rows", "size_bytes", "live_bytes")),
    ("ck_memos_state", schema.memos, {"state": "PENDING"}, {"state": "QUEUED"}),
    ("ck_memos_file", schema.memos, {"state": "PENDING"}, {"file": 1}),
    ("ck_memos_file", schema.memos, {"state": "READY"}, {"file": None}),
    ("ck_memos_file", schema.memos, {"state": "READY"}, {"state": "FAILED"}),
    *(("ck_memos_size", schema.memos, {"state": "READY"}, {name: None}) for name in ("rows", "size_bytes", "secs")),
    *(("ck_memos_task", schema.memos, {"state": state}, {"task": None}) for state in ("PENDING", "FAILED", "DROPPED")),
    ("ck_memos_task", schema.memos, {"state": "READY"}, {"task": 1}),
    ("ck_memos_task", schema.memos, {"state": "PENDING"}, {"state": "EVICTED", "evicted_at": 1.0, "evicted_why": "old"}),
    ("ck_memos_eviction", schema.memos, {"state": "PENDING"}, {"state": "EVICTED", "task": None, "evicted_at": 1.0}),
    ("ck_memos_eviction", schema.memos, {"state": "PENDING"}, {"state": "EVICTED", "task": None, "evicted_why": "old"}),
    ("ck_memos_not_negative", schema.memos, {"state": "READY"}, {"rows": -1}),
    ("ck_memos_not_negative", schema.memos, {"state": "READY"}, {"size_bytes": -1}),
    ("ck_tasks_state", schema.tasks, {"state": "QUEUED"}, {"state": "DONE"}),
    *(("ck_tasks_lease_until", schema.tasks, {"state": state}, {"lease_until": 1.0})
      for state in TaskState if state not in (TaskState.LEASED, TaskState.DONE)),
    ("ck_tasks_lease_until", schema.tasks, {"state": "LEASED"}, {"lease_until": None}),
    ("ck_tasks_lease_until", schema.tasks, {"state": "LEASED"}, {"state": "QUEUED"}),
    ("ck_tasks_lease", schema.tasks, {"state": "LEASED"}, {"worker": None}),
    ("ck_tasks_lease", schema.tasks, {"state": "LEASED"}, {"lease": None}),
    ("ck_tasks_lease", schema.tasks, {"state": "LEASED"}, {"fence": 0}),
    ("ck_tasks_lease", schema.tasks, {"state": "LEASED"}, {"attempts": 0, "losses": 0}),
    ("ck_tasks_error", schema.tasks, {"state": "FAILED"}, {"error": None}),
    ("ck_tasks_losses", schema.tasks, {"state": "QUEUED"}, {"losses": 2}),
    ("ck_tasks_not_negative", schema.tasks, {"state": "QUEUED"}, {"fence": -1}),
    ("ck_tasks_not_negative", schema.tasks, {"state": "QUEUED"}, {"attempts": -1, "losses": -1}),
    ("ck_tasks_not_negative", schema.tasks, {"state": "QUEUED"}, {"losses": -1}),
    ("ck_tasks_not_negative", schema.tasks, {"state": "QUEUED"}, {"not_before": -1.0}),
    ("ck_failures_attempt", schema.failures, {}, {"attempt": 0}),
    ("ck_feature_statistics_version", schema.feature_statistics, {}, {"version": 0}),
    ("ck_feature_samples_not_negative", schema.feature_samples, {}, {"epoch": -1}),
    ("ck_evictions_restored", schema.evictions, {}, {"restored_at": 1.0}),
    *(("ck_joined_columns_failed", schema.joined_columns, {}, {name: value})
      for name, value in (("failed_version", 1), ("failed_other_version", 1), ("error", "e"))),
    *(("ck_joined_views_not_negative", schema.joined_views, {}, {name: -1}) for name in ("other_version", "events")),
    ("ck_time_ranges_both", schema.time_ranges, {}, {"first_micros": None}),
    ("ck_time_ranges_order", schema.time_ranges, {}, {"first_micros": 2}),
    ("ck_evictions_restored", schema.evictions, {}, {"restored_by": "ann"}),
    ("ck_evictions_not_negative", schema.evictions, {}, {"memos": -1}),
    ("ck_evictions_not_negative", schema.evictions, {}, {"size_bytes": -1}),
]  # fmt: skip


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    """Into a catalog with rows that keep every rule; nothing stays."""
    catalog = Catalog.open(url)
    with catalog.write() as connection, connection.begin_nested() as nested:
        _write_rows(connection)
        yield connection
        nested.rollback()
    catalog.close()


def _write_rows(connection: Connection) -> None:
    for table, row in ROWS:
        connection.execute(insert(table).values(**row))
    for number, (state, (memo_state, of_task, of_memo)) in enumerate(TASKS.items(), 1):
        key = f"{number:064}"
        task = None if state is TaskState.DONE else number
        if task is not None:
            connection.execute(insert(schema.tasks).values(id=task, state=state, **_TASK, **of_task))
        connection.execute(insert(schema.memos).values(memo_key=key, state=memo_state, task=task, **_MEMO, **of_memo))
        if state is TaskState.FAILED:
            connection.execute(insert(schema.failures).values(
                task=number, attempt=1, failed_at=0.0, kind="raised", operator="", exception="", error="", document={}))  # fmt: skip


def test_every_rule_refuses_the_rows_that_break_it(connection: Connection) -> None:
    for rule, table, chosen, values in BROKEN:
        where = [table.c[name] == value for name, value in chosen.items()]
        with pytest.raises(IntegrityError) as caught, connection.begin_nested():
            assert connection.execute(update(table).where(*where).values(**values)).rowcount == 0, (rule, values)
        said = str(caught.value.orig)
        # SQLite names the columns of a unique index, not the index.
        assert rule in said or (rule.startswith("uq_") and f"{table.name}." in said), (rule, values, said)


def test_an_evicted_memo_says_when_and_why(connection: Connection) -> None:
    values = {"state": MemoState.EVICTED, "file": None, "evicted_at": 1.0, "evicted_why": "old"}
    done = connection.execute(update(schema.memos).where(schema.memos.c.state == MemoState.READY).values(**values))
    assert done.rowcount == 1


def test_every_rule_is_broken_once() -> None:
    rules = set()
    for table in schema.metadata.tables.values():
        rules |= {str(one.name) for one in table.constraints if isinstance(one, CheckConstraint)}
        rules |= {
            str(one.name) for one in table.indexes if one.unique and one.dialect_options["sqlite"]["where"] is not None
        }
    assert {rule for rule, *_ in BROKEN} == rules


def test_the_values_are_those_of_the_code() -> None:
    stated = {
        "ck_tasks_state": [state for state in TaskState if state is not TaskState.DONE],
        "ck_memos_state": [state for state in MemoState if state is not MemoState.RUNNING],
        "ck_changes_kind": list(get_args(TableChangeKind)),
        "ck_lakes_partition_by": list(get_args(PartitionBy)),
    }
    for table in schema.metadata.tables.values():
        for one in table.constraints:
            if isinstance(one, CheckConstraint) and str(one.name) in stated:
                column, _, values = str(one.sqltext).partition(" IN ")
                assert values == f"({', '.join(repr(str(value)) for value in stated.pop(str(one.name)))})", column
    assert stated == {}
