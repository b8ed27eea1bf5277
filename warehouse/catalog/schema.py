"""The catalog's tables in SQLAlchemy Core, for SQLite and PostgreSQL.

Times are float seconds since the epoch (columns ``*_at``); sizes are bytes. Strings of a given length are compared byte by
byte in both databases, so that order and prefixes are the same and use the indexes. A change here needs a new migration
under ``warehouse/catalog/migrations/versions``; a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeEngine

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: SQLite assigns ids only to a column of type INTEGER.
_ROW_ID = BigInteger().with_variant(Integer, "sqlite")


def _string(length: int) -> TypeEngine[str]:
    return String(length).with_variant(String(length, collation="C"), "postgresql")


_HASH = _string(64)
_NAME = _string(255)


def _check(name: str, rule: str) -> CheckConstraint:
    return CheckConstraint(rule, name=name)


def _not_negative(*columns: str) -> CheckConstraint:
    return _check("not_negative", " AND ".join(f"{column} >= 0" for column in columns))


def _one_of(column: str, *values: str) -> CheckConstraint:
    return _check(column, f"{column} IN ({', '.join(map(repr, values))})")


_IS_CURRENT = text('"current"')
_IS_LIVE = text("live")

tables = Table(
    "tables",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("root", Text, nullable=False),
    Column("time_column", Text),
    # [[name, arrow type], ...] in file order; [.., .., true] for overlay-only; [.., .., .., [type, ...]] for several stored types
    Column("columns", JSON, nullable=False),
    Column("version", Integer, nullable=False),
    Column("registered_at", Float, nullable=False),
    Column("dropped_at", Float),  # null for a live table; the row of a dropped one keeps its version
)

#: The current files of a table, with size and modification time as of when they were read.
files = Table(
    "files",
    metadata,
    Column("table_name", ForeignKey("tables.name"), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("partition", _NAME, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("mtime_ns", BigInteger, nullable=False),
    _not_negative("size_bytes"),
)

#: Fragments of every version; rows are immutable. Two rows may share a fragment_id: equal content in two files, or one
#: file before and after an overlay. ``digests`` include the overlays of the row. A memo refers to the row with the overlays
#: that it is computed from.
fragments = Table(
    "fragments",
    metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("fragment_id", _HASH, nullable=False, index=True),
    Column("table_name", ForeignKey("tables.name"), nullable=False),
    Column("partition", _NAME, nullable=False),  # of a merged fragment: that of its first member
    Column("path", Text, nullable=False),
    Column("row_groups", JSON, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("digests", JSON, nullable=False),
    Column("overlays", JSON(none_as_null=True)),  # {column: path of the file that holds it now}
    Column("members", JSON(none_as_null=True)),  # of a merged fragment: the rows of its fragments, in order
    Column("levels", JSON(none_as_null=True)),  # {column: its value in the file's folders}
    Column("digest_types", JSON(none_as_null=True)),  # {column: the type it is digested in, if not the file's}
    Index("ix_fragments_table_name_path", "table_name", "path"),
    _not_negative("rows", "size_bytes"),
)

manifests = Table(
    "manifests",
    metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("table_name", ForeignKey("tables.name"), nullable=False),
    Column("partition", _NAME, nullable=False),
    Column("version", Integer, nullable=False),
    Column("table_version", Integer, nullable=False),
    Column("start_at", Float, nullable=False),
    Column("end_at", Float, nullable=False),
    Column("current", Boolean, nullable=False),
    UniqueConstraint("table_name", "partition", "version"),
    Index("ix_manifests_table_name_current", "table_name", "current"),
    Index("uq_manifests_current", "table_name", "partition", unique=True,
          sqlite_where=_IS_CURRENT, postgresql_where=_IS_CURRENT),
)  # fmt: skip

manifest_fragments = Table(
    "manifest_fragments",
    metadata,
    Column("manifest", ForeignKey("manifests.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("fragment", ForeignKey("fragments.id"), nullable=False, index=True),
    Column("deletions", Text),  # path of the file with the deletion vector, its column "deleted"
    Column("deletions_checksum", _HASH),
    Column("deleted_rows", BigInteger),
    _check(
        "deletions",
        "(deletions IS NULL) = (deletions_checksum IS NULL) AND (deletions IS NULL) = (deleted_rows IS NULL)",
    ),
    _not_negative("position", "deleted_rows"),
)

#: The fragments of current manifests that are parts of a merged fragment. A merge whose parts are not all current is removed.
merged_fragments = Table(
    "merged_fragments",
    metadata,
    Column("fragment", ForeignKey("fragments.id"), primary_key=True, autoincrement=False),
    Column("merged", ForeignKey("fragments.id"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("first_row", BigInteger, nullable=False),
    Index("uq_merged_fragments_merged_position", "merged", "position", unique=True),
    _not_negative("position", "first_row"),
)

#: The change that made each version of a table.
changes = Table(
    "changes",
    metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("table_name", ForeignKey("tables.name"), nullable=False),
    Column("table_version", Integer, nullable=False),
    Column("kind", _string(16), nullable=False),
    Column("columns", JSON, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("fragments", BigInteger, nullable=False),
    Column("source", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("schema", JSON(none_as_null=True)),  # the table's columns from this version on, if they changed
    UniqueConstraint("table_name", "table_version"),
    _one_of("kind", "register", "append", "overlay", "fix", "delete", "drop"),
    _not_negative("rows", "fragments"),
)

#: The columns in files under ``overlays`` of the home; a file there without a row is unreferenced.
overlays = Table(
    "overlays",
    metadata,
    Column("path", Text, primary_key=True),
    Column("column_name", _NAME, primary_key=True),
    Column("change", ForeignKey("changes.id"), nullable=False, index=True),
    Column("fragment_id", _HASH, nullable=False),
    Column("arrow_type", Text, nullable=False),
    Column("checksum", _HASH, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
)

#: Columns that are joined from other tables: how each is made, and why that failed, at which versions of the two tables.
joined_columns = Table(
    "joined_columns",
    metadata,
    Column("table_name", ForeignKey("tables.name"), primary_key=True),
    Column("column_name", _NAME, primary_key=True),
    Column("other_table", ForeignKey("tables.name"), nullable=False),
    Column("arrow_type", Text, nullable=False),
    Column("document", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("failed_version", Integer),
    Column("failed_other_version", Integer),
    Column("error", Text),
    _check("failed", "(failed_version IS NULL) = (error IS NULL) AND (failed_other_version IS NULL) = (error IS NULL)"),
)

#: The values of joined columns by what they are computed from; what the last column says is for people.
joined_views = Table(
    "joined_views",
    metadata,
    Column("view", _HASH, primary_key=True),
    Column("table_name", _NAME, nullable=False),
    Column("column_name", _NAME, nullable=False),
    Column("checksum", _HASH, nullable=False),
    Column("other_version", Integer, nullable=False),  # of the other table, whose rows were seen
    Column("computed_at", Float, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("changed_events", BigInteger),  # None: the column had no values before
    Column("cause", Text, nullable=False),
    ForeignKeyConstraint(["table_name", "column_name"], ["joined_columns.table_name", "joined_columns.column_name"]),
    Index("ix_joined_views_table_name_column_name", "table_name", "column_name"),
    _not_negative("other_version", "events"),
)

#: The fragments whose joined columns of one other table a worker computes now.
join_leases = Table(
    "join_leases",
    metadata,
    Column("other_table", ForeignKey("tables.name"), primary_key=True),
    Column("fragment", BigInteger, primary_key=True, autoincrement=False),  # a row of ``fragments``, which may be gone
    Column("lease", _string(32), nullable=False, index=True),
    Column("worker", Text, nullable=False),
    Column("lease_until", Float, nullable=False),
)

#: The first and the last time of columns of times, by the digest of the column; of one without a time none.
time_ranges = Table(
    "time_ranges",
    metadata,
    Column("digest", _HASH, primary_key=True),
    Column("first_micros", BigInteger),
    Column("last_micros", BigInteger),
    _check("both", "(first_micros IS NULL) = (last_micros IS NULL)"),
    _check("order", "first_micros <= last_micros"),
)

#: The tables that follow a lake, each at the version of the lake whose rows it has.
lakes = Table(
    "lakes",
    metadata,
    Column("table_name", ForeignKey("tables.name"), primary_key=True),
    Column("location", Text, nullable=False),
    Column("format", _string(16), nullable=False),
    Column("lake_id", Text, nullable=False),  # the identity that the lake gave its table when it was created
    Column("version", Text, nullable=False),  # a version of Delta, or the id of a snapshot of Iceberg
    Column("partition_by", _string(8), nullable=False),
    Column("time_unit", _string(2), nullable=False),  # of a time column of integers; else empty
    Column("keys", JSON, nullable=False),  # the columns that identify a row through changes
    _one_of("format", "delta", "iceberg"),
    _one_of("partition_by", "hour", "day"),
)

#: The files of a table that follows a lake, each with the file that says where its rows come from.
lake_parts = Table(
    "lake_parts",
    metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("table_name", ForeignKey("tables.name"), nullable=False, index=True),
    Column("path", Text, nullable=False),
    Column("origins", Text, nullable=False),  # relative to the home
)

#: The live files of a lake at the version of its table. ``state``: digest of the rows that are deleted in the file, or empty.
#: ``parts``: the parts that hold its rows.
lake_files = Table(
    "lake_files",
    metadata,
    Column("table_name", ForeignKey("tables.name"), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("parts", JSON, nullable=False),
)

#: The tables that a Kafka topic feeds. A row may be there before its table: with the newest messages as the start, its first offsets
#: are kept before the first message is read.
kafka_topics = Table(
    "kafka_topics",
    metadata,
    Column("table_name", _NAME, primary_key=True),
    Column("brokers", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column(
        "topic_id", Text, nullable=False
    ),  # the identity that Kafka gave the topic when it was created; empty if unknown
    Column("start", _string(8), nullable=False),
    Column("schema", JSON(none_as_null=True)),  # how messages become rows; null before the first ones
    _one_of("start", "earliest", "latest"),
)

#: The offsets of the messages in each version of a table that a topic feeds: from ``first_offset`` up to, but not with, ``next_offset``.
#: A partition of the topic without a row at a version is where its newest row before leaves it. Version 0: the start.
kafka_offsets = Table(
    "kafka_offsets",
    metadata,
    Column("table_name", _NAME, primary_key=True),
    Column("table_version", Integer, primary_key=True, autoincrement=False),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("first_offset", BigInteger, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    _not_negative("table_version", "partition", "first_offset"),
    _check("order", "next_offset >= first_offset"),
)

clients = Table(
    "clients",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("served", BigInteger, nullable=False),  # number of its last lease; the least recently served goes first
    Column("leased_tasks", BigInteger, nullable=False),
    Column("weight", Float, nullable=False, server_default="1"),
    Column("virtual_secs", Float),  # virtual time, see warehouse.scheduling.fair_shares; null: never served
    Column("deadline_secs", Float),  # the longest time its tasks may wait, which sizes the fleet; null: the default
    _not_negative("served", "leased_tasks"),
    _check("shares", "weight > 0 AND deadline_secs > 0"),
)

models = Table(
    "models",
    metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("name", _NAME, nullable=False),
    Column("version", Integer, nullable=False),
    Column("client", ForeignKey("clients.name"), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("label", Text, nullable=False),  # a raw column's name, or the expression in one line
    Column("table_name", ForeignKey("tables.name"), nullable=False),
    Column("table_version", Integer, nullable=False),  # its missing memos are queued up to this version of the table
    Column("digest", _HASH, nullable=False),
    Column("live", Boolean, nullable=False),  # the newest version of its name
    Column("policy", _string(16), nullable=False, server_default="all"),
    Column("submitted_at", Float, nullable=False),
    Column("label_component", JSON(none_as_null=True)),  # the label's expression; null for a raw column
    Column("task", _string(16)),  # null: binary, by default
    Column("classes", Integer, nullable=False, server_default="0"),  # of a multi-class label
    UniqueConstraint("name", "version"),
    Index("uq_models_live", "name", unique=True, sqlite_where=_IS_LIVE, postgresql_where=_IS_LIVE),
    _not_negative("classes"),
)

components = Table(
    "components",
    metadata,
    Column("fingerprint", _HASH, primary_key=True),
    Column("shape", _HASH, nullable=False, index=True),
    Column("expression", Text, nullable=False),
    Column("document", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("ix_components_created_at_fingerprint", "created_at", "fingerprint"),
)

component_columns = Table(
    "component_columns",
    metadata,
    Column("fingerprint", ForeignKey("components.fingerprint"), primary_key=True),
    Column("column_name", _NAME, primary_key=True),
    Index("ix_component_columns_column_name_fingerprint", "column_name", "fingerprint"),
)

component_operators = Table(
    "component_operators",
    metadata,
    Column("fingerprint", ForeignKey("components.fingerprint"), primary_key=True),
    Column("operator", _NAME, primary_key=True),
    Column("version", Integer, nullable=False),
    Index("ix_component_operators_operator_version_fingerprint", "operator", "version", "fingerprint"),
)

model_inputs = Table(
    "model_inputs",
    metadata,
    Column("model", ForeignKey("models.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("name", _NAME, nullable=False),
    Column("fingerprint", ForeignKey("components.fingerprint"), nullable=False),
    Column("expect", JSON(none_as_null=True)),  # what the model's author expects of its values
    Index("ix_model_inputs_fingerprint_model", "fingerprint", "model"),
)

#: The identity of every subgraph of a component, its root included.
component_subgraphs = Table(
    "component_subgraphs",
    metadata,
    Column("fingerprint", ForeignKey("components.fingerprint"), primary_key=True),
    Column("subgraph", _HASH, primary_key=True),
    Index("ix_component_subgraphs_subgraph_fingerprint", "subgraph", "fingerprint"),
)

#: What patterns need of each subgraph (:mod:`transforms.comparison.pattern_facts`). A fact that is made otherwise needs a migration that makes all of them again.
subgraph_facts = Table(
    "subgraph_facts",
    metadata,
    Column("fact", _HASH, primary_key=True),
    Column("subgraph", _HASH, primary_key=True),
)

#: Memo files. A path is never used twice. ``live_bytes``: the bytes of its ready memos. ``condemned_at``: since when the file
#: is unreferenced (has no ready memo); ``gc`` deletes it. ``collected_at``: since when ``gc`` may be deleting its bytes; no memo becomes ready in it
#: again.
memo_files = Table(
    "memo_files",
    metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("path", Text, nullable=False, unique=True),
    Column("checksum", _HASH, nullable=False),  # digest of the checksums of its columns
    Column("rows", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("live_bytes", BigInteger, nullable=False),
    Column("written_at", Float, nullable=False),
    Column("condemned_at", Float, index=True),
    Column("collected_at", Float),
    _not_negative("rows", "size_bytes", "live_bytes"),
    sqlite_autoincrement=True,  # an id is never reused: tombstones refer to files that are gone
)

#: Sets of components that are stored together in files; each set is stored once.
column_sets = Table(
    "column_sets",
    metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("digest", _HASH, nullable=False, unique=True),
)

set_members = Table(
    "set_members",
    metadata,
    Column("column_set", ForeignKey("column_sets.id"), primary_key=True),
    Column("fingerprint", _HASH, primary_key=True, index=True),
)

#: The ready memos, one row per file and content instead of one per memo. Always consistent with ``memos``.
coverage = Table(
    "coverage",
    metadata,
    Column("file", ForeignKey("memo_files.id"), primary_key=True),
    Column("content", _HASH, primary_key=True),
    Column("column_set", ForeignKey("column_sets.id"), nullable=False),
    Index("ix_coverage_column_set_content", "column_set", "content"),
)

#: Evictions by conditions or by a budget. ``plan``: the identity of the evicted memos; ``memos`` and ``size_bytes``: their number and bytes then.
evictions = Table(
    "evictions",
    metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("evicted_at", Float, nullable=False),
    Column("why", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("plan", _string(64), nullable=False),
    Column("memos", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("restored_at", Float),  # of the newest restoration
    Column("restored_by", Text),
    _check("restored", "(restored_at IS NULL) = (restored_by IS NULL)"),
    _not_negative("memos", "size_bytes"),
    sqlite_autoincrement=True,  # an id is never reused: it is an eviction's number for users
)

#: What an eviction took from the coverage of a file that still exists.
evicted_coverage = Table(
    "evicted_coverage",
    metadata,
    Column("eviction", ForeignKey("evictions.id"), primary_key=True),
    Column("file", ForeignKey("memo_files.id"), primary_key=True, index=True),
    Column("content", _HASH, primary_key=True),
    Column("column_set", ForeignKey("column_sets.id"), primary_key=True),
)

#: Unfinished tasks: one row for the memos over one fragment that are leased together. A memo refers to its row, which is the
#: only record of which memos share it. States and counts are those of :mod:`warehouse.scheduling.task_states`, the same for
#: all of them; a row without memos is deleted. Table and partition are those of the fragment.
tasks = Table(
    "tasks",
    metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("fragment", ForeignKey("fragments.id"), nullable=False),
    Column("table_name", ForeignKey("tables.name"), nullable=False),
    Column("partition", _NAME, nullable=False),
    Column("state", _string(16), nullable=False),
    Column("worker", Text),
    Column("lease", _string(32)),  # the lease's name, part of the names of files that its worker writes
    Column("lease_until", Float),
    Column("fence", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("losses", Integer, nullable=False, server_default="0"),  # attempts whose lease expired
    Column("not_before", Float, nullable=False),
    Column("error", Text),
    Column("created_at", Float, nullable=False),
    Column("changed_at", Float, nullable=False),
    Index("ix_tasks_state_table_name_partition", "state", "table_name", "partition"),
    _one_of("state", "QUEUED", "LEASED", "FAILED", "DROPPED"),
    _check("lease_until", "(state = 'LEASED') = (lease_until IS NOT NULL)"),
    _check("lease", "state <> 'LEASED' OR (worker IS NOT NULL AND lease IS NOT NULL AND fence > 0 AND attempts > 0)"),
    _check("error", "state <> 'FAILED' OR error IS NOT NULL"),
    _check("losses", "losses <= attempts"),
    _not_negative("fence", "attempts", "losses", "not_before"),
    sqlite_autoincrement=True,  # an id is never reused: it is a task's number for users
)

_STORED = text("file IS NOT NULL")
_UNREADY = text("task IS NOT NULL")
_UNDOABLE = text("eviction IS NOT NULL")

#: A memo is READY exactly while it has a file; its size is known then. It has a task exactly while it is PENDING, FAILED or
#: DROPPED. An evicted memo records when and why. A memo is PENDING while its task is queued or leased: a lease changes tasks
#: only. ``changed_at`` of a pending memo is when it was queued.
memos = Table(
    "memos",
    metadata,
    Column("memo_key", _HASH, primary_key=True),
    Column("fingerprint", ForeignKey("components.fingerprint"), nullable=False),
    Column("fragment", ForeignKey("fragments.id"), nullable=False, index=True),
    Column("state", _string(16), nullable=False),
    Column("task", ForeignKey("tasks.id")),
    Column("file", ForeignKey("memo_files.id")),
    Column("rows", BigInteger),
    Column("size_bytes", BigInteger),
    Column("secs", Float),
    Column("created_at", Float, nullable=False),
    Column("changed_at", Float, nullable=False),
    Column("queued_by", ForeignKey("models.id"), nullable=False),
    Column("cause_code", _string(32), nullable=False),  # cause of the miss that queued it
    Column("cause", Text, nullable=False),
    Column("evicted_at", Float),
    Column("evicted_why", Text),
    # Of a tombstone of an eviction that can be undone: its row, the file of the memo, which may be gone, and when the memo became ready.
    Column("eviction", BigInteger),
    Column("evicted_file", BigInteger),
    Column("evicted_ready_at", Float),
    # Covering indexes for sums over the memos of a component, for its pending ones by task, and for sums over those of a file.
    Index("ix_memos_fingerprint_state", "fingerprint", "state", "task", "size_bytes", "secs", "rows"),
    Index("ix_memos_file_state", "file", "state", "size_bytes", sqlite_where=_STORED, postgresql_where=_STORED),
    Index("ix_memos_task", "task", sqlite_where=_UNREADY, postgresql_where=_UNREADY),
    Index("ix_memos_eviction", "eviction", sqlite_where=_UNDOABLE, postgresql_where=_UNDOABLE),
    _one_of("state", "PENDING", "READY", "FAILED", "DROPPED", "EVICTED"),
    _check("file", "(state = 'READY') = (file IS NOT NULL)"),
    _check("task", "(state IN ('READY', 'EVICTED')) = (task IS NULL)"),
    _check("size", "state <> 'READY' OR (rows IS NOT NULL AND size_bytes IS NOT NULL AND secs IS NOT NULL)"),
    _check("eviction", "state <> 'EVICTED' OR (evicted_at IS NOT NULL AND evicted_why IS NOT NULL)"),
    _not_negative("rows", "size_bytes"),
)

#: The last failed attempt of a task, which has one memo then. Every FAILED task has one.
failures = Table(
    "failures",
    metadata,
    Column("task", ForeignKey("tasks.id"), primary_key=True, autoincrement=False),
    Column("worker", Text),
    Column("attempt", Integer, nullable=False),
    Column("failed_at", Float, nullable=False),
    Column("kind", _string(16), nullable=False),
    Column("operator", _NAME, nullable=False),
    Column("exception", _NAME, nullable=False),
    Column("error", Text, nullable=False),
    Column("document", JSON, nullable=False),  # the whole warehouse.queue.failures.Failure; last, since it may be long
    _check("attempt", "attempt > 0"),
)

#: Models that wait for the open tasks of a component over the data of a table; deleted when it has none.
waits = Table(
    "waits",
    metadata,
    Column("fingerprint", ForeignKey("components.fingerprint"), primary_key=True),
    Column("table_name", ForeignKey("tables.name"), primary_key=True),
    Column("model", ForeignKey("models.id"), primary_key=True, index=True),
)

#: Pending aliases: further contents for which a memo will be found once it is ready.
awaited_contents = Table(
    "awaited_contents",
    metadata,
    Column("memo_key", ForeignKey("memos.memo_key"), primary_key=True),
    Column("content", _HASH, primary_key=True),
)

submissions = Table(
    "submissions",
    metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("model", ForeignKey("models.id"), nullable=False, index=True),
    Column("submitted_at", Float, nullable=False),
    Column("unchanged", Boolean, nullable=False),
    Column("hits", BigInteger, nullable=False),
    Column("shared", BigInteger, nullable=False),
    Column("queued", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    _not_negative("hits", "shared", "queued", "failed"),
)

#: Pins: leases on read solutions in use. Their memos are not evicted before ``expires_at``, which a heartbeat extends.
pins = Table(
    "pins",
    metadata,
    Column("id", _string(32), primary_key=True),
    Column("holder", Text, nullable=False),
    Column("model", ForeignKey("models.id"), nullable=False),
    Column("table_name", ForeignKey("tables.name"), nullable=False),
    Column("start_at", Float),
    Column("end_at", Float),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False, index=True),
)

pin_components = Table(
    "pin_components",
    metadata,
    Column("pin", ForeignKey("pins.id"), primary_key=True),
    Column("fingerprint", _HASH, primary_key=True, index=True),
)

#: Decaying sums of measurements by operator (:mod:`warehouse.costs.measurements`); ``operator`` is a
#: :func:`transforms.execution.operator_costs.cost_name`.
operator_costs = Table(
    "operator_costs",
    metadata,
    Column("operator", _NAME, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("rows", Float, nullable=False),
    Column("secs", Float, nullable=False),
    Column("stored_rows", Float, nullable=False),
    Column("stored_bytes", Float, nullable=False),
)

#: The same for components, by fingerprint.
component_costs = Table(
    "component_costs",
    metadata,
    Column("fingerprint", _HASH, primary_key=True),
    Column("rows", Float, nullable=False),
    Column("secs", Float, nullable=False),
    Column("stored_bytes", Float, nullable=False),
)

#: Read solutions that were requested for training. ``start_at`` and ``end_at`` bound the partitions; null: no bound. The
#: CPU seconds are estimates for models of the adaptive policy, else 0: as it was read, and if all or no memos were ready.
reads = Table(
    "reads",
    metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("model", ForeignKey("models.id"), nullable=False),
    Column("table_name", ForeignKey("tables.name"), nullable=False),
    Column("start_at", Float),
    Column("end_at", Float),
    Column("rows", BigInteger, nullable=False),
    Column("read_at", Float, nullable=False),
    Column("secs", Float, nullable=False, server_default="0"),
    Column("all_secs", Float, nullable=False, server_default="0"),
    Column("none_secs", Float, nullable=False, server_default="0"),
    Index("ix_reads_model_read_at", "model", "read_at"),
)

#: What the adaptive policy paid over a table, and what keeping all or nothing would have cost, up to ``settled_at``
#: (:mod:`warehouse.planning.regret`). CPU seconds.
policy_accounts = Table(
    "policy_accounts",
    metadata,
    Column("table_name", ForeignKey("tables.name"), primary_key=True),
    Column("settled_at", Float, nullable=False),
    Column("own_secs", Float, nullable=False),
    Column("all_secs", Float, nullable=False),
    Column("none_secs", Float, nullable=False),
    Column("scale_secs", Float, nullable=False),
    Column("hedged_all_secs", Float),  # null while the forecast decides
    Column("hedged_none_secs", Float),
    _check("hedged", "(hedged_all_secs IS NULL) = (hedged_none_secs IS NULL)"),
)

#: Results of full passes. ``key`` covers the operator, its expression and the data of every partition.
analyses = Table(
    "analyses",
    metadata,
    Column("key", _HASH, primary_key=True),
    Column("fingerprint", _HASH, nullable=False, index=True),
    Column("operator", _NAME, nullable=False),
    Column("expression", Text, nullable=False),
    Column("table_name", ForeignKey("tables.name"), nullable=False),
    Column("start_at", Float, nullable=False),
    Column("end_at", Float, nullable=False),
    Column("partitions", JSON, nullable=False),  # [[partition, digest of its contribution], ...] in time order
    Column("rows", BigInteger, nullable=False),
    Column("artifact", _HASH, nullable=False, index=True),
    Column("secs", Float, nullable=False),
    Column("created_at", Float, nullable=False),
)

#: The analyses that each version of a model was resolved with. ``analysis`` identifies operator, expression, table and range,
#: without the data. Rows of a version that is not submitted yet are those that ``headrace analyze`` prepared for it.
model_analyses = Table(
    "model_analyses",
    metadata,
    Column("model_name", _NAME, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("analysis", _HASH, primary_key=True),
    Column("key", _HASH, nullable=False),  # the key in ``analyses`` at that time
    Column("artifact", _HASH, nullable=False, index=True),
    Column("operator", _NAME, nullable=False),
    Column("expression", Text, nullable=False),
    Column("start_at", Float, nullable=False),
    Column("end_at", Float, nullable=False),
    Column("rows", BigInteger, nullable=False),
)

#: The statistics of features by component, as the trainer writes them; every record is a new version, and the newest few are kept.
feature_statistics = Table(
    "feature_statistics",
    metadata,
    Column("fingerprint", _HASH, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("document", JSON, nullable=False),
    Column("recorded_at", Float, nullable=False),
    _check("version", "version > 0"),
)

#: The samples that are in the statistics, so that each counts once; the newest of a run are kept.
feature_samples = Table(
    "feature_samples",
    metadata,
    Column("run", _HASH, primary_key=True),
    Column("host", _NAME, primary_key=True),
    Column("epoch", Integer, primary_key=True, autoincrement=False),
    Column("recorded_at", Float, nullable=False),
    _not_negative("epoch"),
)

#: Sketches of the values of a component over a fragment. ``key``: their identity, of the component, the digests of the columns that it reads, and deleted
#: events.
value_sketches = Table(
    "value_sketches",
    metadata,
    Column("key", _HASH, primary_key=True),
    Column("fingerprint", _HASH, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("recorded_at", Float, nullable=False, index=True),
)

#: The minutes in which a worker recorded the queue, by their number since 1970; ``workers``: that held a lease then.
queue_minutes = Table(
    "queue_minutes",
    metadata,
    Column("minute", BigInteger, primary_key=True, autoincrement=False),
    Column("workers", Integer, nullable=False),
    _not_negative("workers"),
)

#: The tasks of a client in a recorded minute; a client without a task has no row.
queue_samples = Table(
    "queue_samples",
    metadata,
    Column("minute", ForeignKey("queue_minutes.minute"), primary_key=True),
    Column("client", ForeignKey("clients.name"), primary_key=True),
    Column("queued", BigInteger, nullable=False),
    Column("leased", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    _not_negative("queued", "leased", "failed"),
)

#: Events of lineage, in the order in which they were committed; the document of a sent one is empty.
lineage_events = Table(
    "lineage_events",
    metadata,
    Column("id", _ROW_ID, primary_key=True),
    Column("key", _HASH, nullable=False, unique=True),
    Column("document", Text, nullable=False),
    Column("recorded_at", Float, nullable=False),
    Column("taken_at", Float),  # when a sender took it
    Column("sent_at", Float, index=True),
)
