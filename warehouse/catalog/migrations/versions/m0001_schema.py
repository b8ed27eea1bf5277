"""The catalog's schema. It is written out, for it stays as it is while :mod:`warehouse.catalog.schema` goes on to change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "r0003"
down_revision = None

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create every table, those first that others refer to."""
    _create_tables()
    _create_models()
    _create_memo_files()
    _create_queue()
    _create_reads()
    _create_costs()
    _create_analyses()


def _string(length: int) -> TypeEngine[str]:
    return sa.String(length=length).with_variant(sa.String(length=length, collation="C"), "postgresql")


def _create_tables() -> None:
    """Tables, their files and fragments, and what changed in them."""
    op.create_table(
        "tables",
        sa.Column("name", _string(255), nullable=False),
        sa.Column("root", sa.Text(), nullable=False),
        sa.Column("time_column", sa.Text()),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("registered_at", sa.Float(), nullable=False),
        sa.Column("dropped_at", sa.Float()),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tables")),
    )
    op.create_table(
        "files",
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("partition", _string(255), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("mtime_ns", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("size_bytes >= 0", name=op.f("ck_files_not_negative")),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_files_table_name_tables")),
        sa.PrimaryKeyConstraint("table_name", "path", name=op.f("pk_files")),
    )
    op.create_table(
        "fragments",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("fragment_id", _string(64), nullable=False),
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("partition", _string(255), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("row_groups", sa.JSON(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("digests", sa.JSON(), nullable=False),
        sa.Column("overlays", sa.JSON(none_as_null=True)),
        sa.Column("members", sa.JSON(none_as_null=True)),
        sa.CheckConstraint("rows >= 0 AND size_bytes >= 0", name=op.f("ck_fragments_not_negative")),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_fragments_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fragments")),
    )
    op.create_index(op.f("ix_fragments_fragment_id"), "fragments", ["fragment_id"])
    op.create_index("ix_fragments_table_name_path", "fragments", ["table_name", "path"])
    op.create_table(
        "manifests",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("partition", _string(255), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("table_version", sa.Integer(), nullable=False),
        sa.Column("start_at", sa.Float(), nullable=False),
        sa.Column("end_at", sa.Float(), nullable=False),
        sa.Column("current", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_manifests_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_manifests")),
        sa.UniqueConstraint(
            "table_name", "partition", "version", name=op.f("uq_manifests_table_name_partition_version")
        ),
    )
    op.create_index("ix_manifests_table_name_current", "manifests", ["table_name", "current"])
    op.create_index(
        "uq_manifests_current",
        "manifests",
        ["table_name", "partition"],
        unique=True,
        sqlite_where=sa.text('"current"'),
        postgresql_where=sa.text('"current"'),
    )
    op.create_table(
        "manifest_fragments",
        sa.Column("manifest", _ROW_ID, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("fragment", _ROW_ID, nullable=False),
        sa.Column("deletions", sa.Text()),
        sa.Column("deletions_checksum", _string(64)),
        sa.Column("deleted_rows", sa.BigInteger()),
        sa.CheckConstraint(
            "(deletions IS NULL) = (deletions_checksum IS NULL) AND (deletions IS NULL) = (deleted_rows IS NULL)",
            name=op.f("ck_manifest_fragments_deletions"),
        ),
        sa.CheckConstraint("position >= 0 AND deleted_rows >= 0", name=op.f("ck_manifest_fragments_not_negative")),
        sa.ForeignKeyConstraint(["fragment"], ["fragments.id"], name=op.f("fk_manifest_fragments_fragment_fragments")),
        sa.ForeignKeyConstraint(["manifest"], ["manifests.id"], name=op.f("fk_manifest_fragments_manifest_manifests")),
        sa.PrimaryKeyConstraint("manifest", "position", name=op.f("pk_manifest_fragments")),
    )
    op.create_index(op.f("ix_manifest_fragments_fragment"), "manifest_fragments", ["fragment"])
    op.create_table(
        "merged_fragments",
        sa.Column("fragment", _ROW_ID, autoincrement=False, nullable=False),
        sa.Column("merged", _ROW_ID, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("first_row", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("position >= 0 AND first_row >= 0", name=op.f("ck_merged_fragments_not_negative")),
        sa.ForeignKeyConstraint(["fragment"], ["fragments.id"], name=op.f("fk_merged_fragments_fragment_fragments")),
        sa.ForeignKeyConstraint(["merged"], ["fragments.id"], name=op.f("fk_merged_fragments_merged_fragments")),
        sa.PrimaryKeyConstraint("fragment", name=op.f("pk_merged_fragments")),
    )
    op.create_index("uq_merged_fragments_merged_position", "merged_fragments", ["merged", "position"], unique=True)
    op.create_table(
        "changes",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("table_version", sa.Integer(), nullable=False),
        sa.Column("kind", _string(16), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("fragments", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('register', 'append', 'overlay', 'fix', 'delete', 'drop')", name=op.f("ck_changes_kind")
        ),
        sa.CheckConstraint("rows >= 0 AND fragments >= 0", name=op.f("ck_changes_not_negative")),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_changes_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_changes")),
        sa.UniqueConstraint("table_name", "table_version", name=op.f("uq_changes_table_name_table_version")),
    )
    op.create_table(
        "overlays",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("column_name", _string(255), nullable=False),
        sa.Column("change", _ROW_ID, nullable=False),
        sa.Column("fragment_id", _string(64), nullable=False),
        sa.Column("arrow_type", sa.Text(), nullable=False),
        sa.Column("checksum", _string(64), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["change"], ["changes.id"], name=op.f("fk_overlays_change_changes")),
        sa.PrimaryKeyConstraint("path", "column_name", name=op.f("pk_overlays")),
    )
    op.create_index(op.f("ix_overlays_change"), "overlays", ["change"])


def _create_models() -> None:
    """Clients, components and models."""
    op.create_table(
        "clients",
        sa.Column("name", _string(255), nullable=False),
        sa.Column("served", sa.BigInteger(), nullable=False),
        sa.Column("leased_tasks", sa.BigInteger(), nullable=False),
        sa.Column("weight", sa.Float(), server_default="1", nullable=False),
        sa.Column("virtual_secs", sa.Float()),
        sa.Column("deadline_secs", sa.Float()),
        sa.CheckConstraint("served >= 0 AND leased_tasks >= 0", name=op.f("ck_clients_not_negative")),
        sa.CheckConstraint("weight > 0 AND deadline_secs > 0", name=op.f("ck_clients_shares")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_clients")),
    )
    op.create_table(
        "components",
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.Column("shape", _string(64), nullable=False),
        sa.Column("expression", sa.Text(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("pk_components")),
    )
    op.create_index("ix_components_created_at_fingerprint", "components", ["created_at", "fingerprint"])
    op.create_index(op.f("ix_components_shape"), "components", ["shape"])
    op.create_table(
        "component_columns",
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.Column("column_name", _string(255), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["components.fingerprint"], name=op.f("fk_component_columns_fingerprint_components")
        ),
        sa.PrimaryKeyConstraint("fingerprint", "column_name", name=op.f("pk_component_columns")),
    )
    op.create_index("ix_component_columns_column_name_fingerprint", "component_columns", ["column_name", "fingerprint"])
    op.create_table(
        "component_operators",
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.Column("operator", _string(255), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["components.fingerprint"], name=op.f("fk_component_operators_fingerprint_components")
        ),
        sa.PrimaryKeyConstraint("fingerprint", "operator", name=op.f("pk_component_operators")),
    )
    op.create_index(
        "ix_component_operators_operator_version_fingerprint",
        "component_operators",
        ["operator", "version", "fingerprint"],
    )
    op.create_table(
        "component_subgraphs",
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.Column("subgraph", _string(64), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["components.fingerprint"], name=op.f("fk_component_subgraphs_fingerprint_components")
        ),
        sa.PrimaryKeyConstraint("fingerprint", "subgraph", name=op.f("pk_component_subgraphs")),
    )
    op.create_index("ix_component_subgraphs_subgraph_fingerprint", "component_subgraphs", ["subgraph", "fingerprint"])
    op.create_table(
        "models",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("name", _string(255), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("client", _string(255), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("table_version", sa.Integer(), nullable=False),
        sa.Column("digest", _string(64), nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.Column("policy", _string(16), server_default="all", nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("label_component", sa.JSON(none_as_null=True)),
        sa.Column("task", _string(16)),
        sa.Column("classes", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint("classes >= 0", name=op.f("ck_models_not_negative")),
        sa.ForeignKeyConstraint(["client"], ["clients.name"], name=op.f("fk_models_client_clients")),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_models_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", "version", name=op.f("uq_models_name_version")),
    )
    op.create_index(
        "uq_models_live",
        "models",
        ["name"],
        unique=True,
        sqlite_where=sa.text("live"),
        postgresql_where=sa.text("live"),
    )
    op.create_table(
        "model_inputs",
        sa.Column("model", _ROW_ID, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", _string(255), nullable=False),
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["components.fingerprint"], name=op.f("fk_model_inputs_fingerprint_components")
        ),
        sa.ForeignKeyConstraint(["model"], ["models.id"], name=op.f("fk_model_inputs_model_models")),
        sa.PrimaryKeyConstraint("model", "position", name=op.f("pk_model_inputs")),
    )
    op.create_index("ix_model_inputs_fingerprint_model", "model_inputs", ["fingerprint", "model"])
    op.create_table(
        "submissions",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("model", _ROW_ID, nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("unchanged", sa.Boolean(), nullable=False),
        sa.Column("hits", sa.BigInteger(), nullable=False),
        sa.Column("shared", sa.BigInteger(), nullable=False),
        sa.Column("queued", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "hits >= 0 AND shared >= 0 AND queued >= 0 AND failed >= 0", name=op.f("ck_submissions_not_negative")
        ),
        sa.ForeignKeyConstraint(["model"], ["models.id"], name=op.f("fk_submissions_model_models")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_submissions")),
    )
    op.create_index(op.f("ix_submissions_model"), "submissions", ["model"])


def _create_memo_files() -> None:
    """Memo files, and which contents they cover."""
    op.create_table(
        "memo_files",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("checksum", _string(64), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("live_bytes", sa.BigInteger(), nullable=False),
        sa.Column("written_at", sa.Float(), nullable=False),
        sa.Column("condemned_at", sa.Float()),
        sa.CheckConstraint(
            "rows >= 0 AND size_bytes >= 0 AND live_bytes >= 0", name=op.f("ck_memo_files_not_negative")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_memo_files")),
        sa.UniqueConstraint("path", name=op.f("uq_memo_files_path")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_memo_files_condemned_at"), "memo_files", ["condemned_at"])
    op.create_table(
        "column_sets",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("digest", _string(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_column_sets")),
        sa.UniqueConstraint("digest", name=op.f("uq_column_sets_digest")),
    )
    op.create_table(
        "set_members",
        sa.Column("column_set", _ROW_ID, nullable=False),
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.ForeignKeyConstraint(["column_set"], ["column_sets.id"], name=op.f("fk_set_members_column_set_column_sets")),
        sa.PrimaryKeyConstraint("column_set", "fingerprint", name=op.f("pk_set_members")),
    )
    op.create_index(op.f("ix_set_members_fingerprint"), "set_members", ["fingerprint"])
    op.create_table(
        "coverage",
        sa.Column("file", _ROW_ID, nullable=False),
        sa.Column("content", _string(64), nullable=False),
        sa.Column("column_set", _ROW_ID, nullable=False),
        sa.ForeignKeyConstraint(["column_set"], ["column_sets.id"], name=op.f("fk_coverage_column_set_column_sets")),
        sa.ForeignKeyConstraint(["file"], ["memo_files.id"], name=op.f("fk_coverage_file_memo_files")),
        sa.PrimaryKeyConstraint("file", "content", name=op.f("pk_coverage")),
    )
    op.create_index("ix_coverage_column_set_content", "coverage", ["column_set", "content"])


def _create_queue() -> None:
    """Memos, the tasks that compute them, and the models that wait."""
    op.create_table(
        "tasks",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("fragment", _ROW_ID, nullable=False),
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("partition", _string(255), nullable=False),
        sa.Column("state", _string(16), nullable=False),
        sa.Column("worker", sa.Text()),
        sa.Column("lease", _string(32)),
        sa.Column("lease_until", sa.Float()),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("losses", sa.Integer(), server_default="0", nullable=False),
        sa.Column("not_before", sa.Float(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.CheckConstraint("(state = 'LEASED') = (lease_until IS NOT NULL)", name=op.f("ck_tasks_lease_until")),
        sa.CheckConstraint("state <> 'FAILED' OR error IS NOT NULL", name=op.f("ck_tasks_error")),
        sa.CheckConstraint(
            "state <> 'LEASED' OR (worker IS NOT NULL AND lease IS NOT NULL AND fence > 0 AND attempts > 0)",
            name=op.f("ck_tasks_lease"),
        ),
        sa.CheckConstraint("state IN ('QUEUED', 'LEASED', 'FAILED', 'DROPPED')", name=op.f("ck_tasks_state")),
        sa.CheckConstraint(
            "fence >= 0 AND attempts >= 0 AND losses >= 0 AND not_before >= 0", name=op.f("ck_tasks_not_negative")
        ),
        sa.CheckConstraint("losses <= attempts", name=op.f("ck_tasks_losses")),
        sa.ForeignKeyConstraint(["fragment"], ["fragments.id"], name=op.f("fk_tasks_fragment_fragments")),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_tasks_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tasks_state_table_name_partition", "tasks", ["state", "table_name", "partition"])
    op.create_table(
        "memos",
        sa.Column("memo_key", _string(64), nullable=False),
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.Column("fragment", _ROW_ID, nullable=False),
        sa.Column("state", _string(16), nullable=False),
        sa.Column("task", _ROW_ID),
        sa.Column("file", _ROW_ID),
        sa.Column("rows", sa.BigInteger()),
        sa.Column("size_bytes", sa.BigInteger()),
        sa.Column("secs", sa.Float()),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("queued_by", _ROW_ID, nullable=False),
        sa.Column("cause_code", _string(32), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("evicted_at", sa.Float()),
        sa.Column("evicted_why", sa.Text()),
        sa.CheckConstraint("(state = 'READY') = (file IS NOT NULL)", name=op.f("ck_memos_file")),
        sa.CheckConstraint("(state IN ('READY', 'EVICTED')) = (task IS NULL)", name=op.f("ck_memos_task")),
        sa.CheckConstraint(
            "state <> 'EVICTED' OR (evicted_at IS NOT NULL AND evicted_why IS NOT NULL)", name=op.f("ck_memos_eviction")
        ),
        sa.CheckConstraint(
            "state <> 'READY' OR (rows IS NOT NULL AND size_bytes IS NOT NULL AND secs IS NOT NULL)",
            name=op.f("ck_memos_size"),
        ),
        sa.CheckConstraint(
            "state IN ('PENDING', 'READY', 'FAILED', 'DROPPED', 'EVICTED')", name=op.f("ck_memos_state")
        ),
        sa.CheckConstraint("rows >= 0 AND size_bytes >= 0", name=op.f("ck_memos_not_negative")),
        sa.ForeignKeyConstraint(["file"], ["memo_files.id"], name=op.f("fk_memos_file_memo_files")),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["components.fingerprint"], name=op.f("fk_memos_fingerprint_components")
        ),
        sa.ForeignKeyConstraint(["fragment"], ["fragments.id"], name=op.f("fk_memos_fragment_fragments")),
        sa.ForeignKeyConstraint(["queued_by"], ["models.id"], name=op.f("fk_memos_queued_by_models")),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name=op.f("fk_memos_task_tasks")),
        sa.PrimaryKeyConstraint("memo_key", name=op.f("pk_memos")),
    )
    op.create_index(
        "ix_memos_file_state",
        "memos",
        ["file", "state", "size_bytes"],
        sqlite_where=sa.text("file IS NOT NULL"),
        postgresql_where=sa.text("file IS NOT NULL"),
    )
    op.create_index(
        "ix_memos_fingerprint_state", "memos", ["fingerprint", "state", "task", "size_bytes", "secs", "rows"]
    )
    op.create_index(op.f("ix_memos_fragment"), "memos", ["fragment"])
    op.create_index(
        op.f("ix_memos_task"),
        "memos",
        ["task"],
        sqlite_where=sa.text("task IS NOT NULL"),
        postgresql_where=sa.text("task IS NOT NULL"),
    )
    op.create_table(
        "failures",
        sa.Column("task", _ROW_ID, autoincrement=False, nullable=False),
        sa.Column("worker", sa.Text()),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("failed_at", sa.Float(), nullable=False),
        sa.Column("kind", _string(16), nullable=False),
        sa.Column("operator", _string(255), nullable=False),
        sa.Column("exception", _string(255), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.CheckConstraint("attempt > 0", name=op.f("ck_failures_attempt")),
        sa.ForeignKeyConstraint(["task"], ["tasks.id"], name=op.f("fk_failures_task_tasks")),
        sa.PrimaryKeyConstraint("task", name=op.f("pk_failures")),
    )
    op.create_table(
        "waits",
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("model", _ROW_ID, nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["components.fingerprint"], name=op.f("fk_waits_fingerprint_components")
        ),
        sa.ForeignKeyConstraint(["model"], ["models.id"], name=op.f("fk_waits_model_models")),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_waits_table_name_tables")),
        sa.PrimaryKeyConstraint("fingerprint", "table_name", "model", name=op.f("pk_waits")),
    )
    op.create_index(op.f("ix_waits_model"), "waits", ["model"])
    op.create_table(
        "awaited_contents",
        sa.Column("memo_key", _string(64), nullable=False),
        sa.Column("content", _string(64), nullable=False),
        sa.ForeignKeyConstraint(["memo_key"], ["memos.memo_key"], name=op.f("fk_awaited_contents_memo_key_memos")),
        sa.PrimaryKeyConstraint("memo_key", "content", name=op.f("pk_awaited_contents")),
    )


def _create_reads() -> None:
    """Read solutions in use, and what was read."""
    op.create_table(
        "pins",
        sa.Column("id", _string(32), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("model", _ROW_ID, nullable=False),
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("start_at", sa.Float()),
        sa.Column("end_at", sa.Float()),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["model"], ["models.id"], name=op.f("fk_pins_model_models")),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_pins_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pins")),
    )
    op.create_index(op.f("ix_pins_expires_at"), "pins", ["expires_at"])
    op.create_table(
        "pin_components",
        sa.Column("pin", _string(32), nullable=False),
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.ForeignKeyConstraint(["pin"], ["pins.id"], name=op.f("fk_pin_components_pin_pins")),
        sa.PrimaryKeyConstraint("pin", "fingerprint", name=op.f("pk_pin_components")),
    )
    op.create_index(op.f("ix_pin_components_fingerprint"), "pin_components", ["fingerprint"])
    op.create_table(
        "reads",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("model", _ROW_ID, nullable=False),
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("start_at", sa.Float()),
        sa.Column("end_at", sa.Float()),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("read_at", sa.Float(), nullable=False),
        sa.Column("secs", sa.Float(), server_default="0", nullable=False),
        sa.Column("all_secs", sa.Float(), server_default="0", nullable=False),
        sa.Column("none_secs", sa.Float(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["model"], ["models.id"], name=op.f("fk_reads_model_models")),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_reads_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reads")),
    )
    op.create_index("ix_reads_model_read_at", "reads", ["model", "read_at"])
    op.create_table(
        "policy_accounts",
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("settled_at", sa.Float(), nullable=False),
        sa.Column("own_secs", sa.Float(), nullable=False),
        sa.Column("all_secs", sa.Float(), nullable=False),
        sa.Column("none_secs", sa.Float(), nullable=False),
        sa.Column("scale_secs", sa.Float(), nullable=False),
        sa.Column("hedged_all_secs", sa.Float()),
        sa.Column("hedged_none_secs", sa.Float()),
        sa.CheckConstraint(
            "(hedged_all_secs IS NULL) = (hedged_none_secs IS NULL)", name=op.f("ck_policy_accounts_hedged")
        ),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_policy_accounts_table_name_tables")),
        sa.PrimaryKeyConstraint("table_name", name=op.f("pk_policy_accounts")),
    )


def _create_costs() -> None:
    """What operators and components cost."""
    op.create_table(
        "operator_costs",
        sa.Column("operator", _string(255), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("rows", sa.Float(), nullable=False),
        sa.Column("secs", sa.Float(), nullable=False),
        sa.Column("stored_rows", sa.Float(), nullable=False),
        sa.Column("stored_bytes", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("operator", "version", name=op.f("pk_operator_costs")),
    )
    op.create_table(
        "component_costs",
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.Column("rows", sa.Float(), nullable=False),
        sa.Column("secs", sa.Float(), nullable=False),
        sa.Column("stored_bytes", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("pk_component_costs")),
    )


def _create_analyses() -> None:
    """What full passes found."""
    op.create_table(
        "analyses",
        sa.Column("key", _string(64), nullable=False),
        sa.Column("fingerprint", _string(64), nullable=False),
        sa.Column("operator", _string(255), nullable=False),
        sa.Column("expression", sa.Text(), nullable=False),
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("start_at", sa.Float(), nullable=False),
        sa.Column("end_at", sa.Float(), nullable=False),
        sa.Column("partitions", sa.JSON(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("artifact", _string(64), nullable=False),
        sa.Column("secs", sa.Float(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_analyses_table_name_tables")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_analyses")),
    )
    op.create_index(op.f("ix_analyses_artifact"), "analyses", ["artifact"])
    op.create_index(op.f("ix_analyses_fingerprint"), "analyses", ["fingerprint"])
    op.create_table(
        "model_analyses",
        sa.Column("model_name", _string(255), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("analysis", _string(64), nullable=False),
        sa.Column("key", _string(64), nullable=False),
        sa.Column("artifact", _string(64), nullable=False),
        sa.Column("operator", _string(255), nullable=False),
        sa.Column("expression", sa.Text(), nullable=False),
        sa.Column("start_at", sa.Float(), nullable=False),
        sa.Column("end_at", sa.Float(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("model_name", "version", "analysis", name=op.f("pk_model_analyses")),
    )
    op.create_index(op.f("ix_model_analyses_artifact"), "model_analyses", ["artifact"])
