"""The first schema: tables, models, components, memos and their queue."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "clients",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("served", sa.BigInteger(), nullable=False),
        sa.Column("leased_tasks", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_clients")),
    )
    op.create_table(
        "components",
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("shape", sa.String(length=64), nullable=False),
        sa.Column("expression", sa.Text(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("pk_components")),
    )
    op.create_index(op.f("ix_components_shape"), "components", ["shape"], unique=False)
    op.create_table(
        "tables",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("root", sa.Text(), nullable=False),
        sa.Column("time_column", sa.Text(), nullable=True),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("registered_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tables")),
    )
    op.create_table(
        "component_columns",
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("column_name", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["components.fingerprint"], name=op.f("fk_component_columns_fingerprint_components")
        ),
        sa.PrimaryKeyConstraint("fingerprint", "column_name", name=op.f("pk_component_columns")),
    )
    op.create_index(op.f("ix_component_columns_column_name"), "component_columns", ["column_name"], unique=False)
    op.create_table(
        "component_operators",
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("operator", sa.String(length=255), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["components.fingerprint"], name=op.f("fk_component_operators_fingerprint_components")
        ),
        sa.PrimaryKeyConstraint("fingerprint", "operator", name=op.f("pk_component_operators")),
    )
    op.create_index(op.f("ix_component_operators_operator"), "component_operators", ["operator"], unique=False)
    op.create_table(
        "files",
        sa.Column("table_name", sa.String(length=255), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("partition", sa.String(length=255), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("mtime_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_files_table_name_tables")),
        sa.PrimaryKeyConstraint("table_name", "path", name=op.f("pk_files")),
    )
    op.create_table(
        "fragments",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("fragment_id", sa.String(length=64), nullable=False),
        sa.Column("table_name", sa.String(length=255), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("row_groups", sa.JSON(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("digests", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_fragments_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fragments")),
    )
    op.create_index(op.f("ix_fragments_fragment_id"), "fragments", ["fragment_id"], unique=False)
    op.create_index("ix_fragments_table_name_path", "fragments", ["table_name", "path"], unique=False)
    op.create_table(
        "manifests",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("table_name", sa.String(length=255), nullable=False),
        sa.Column("partition", sa.String(length=255), nullable=False),
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
    op.create_index("ix_manifests_table_name_current", "manifests", ["table_name", "current"], unique=False)
    op.create_table(
        "models",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("client", sa.String(length=255), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("table_name", sa.String(length=255), nullable=False),
        sa.Column("table_version", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["client"], ["clients.name"], name=op.f("fk_models_client_clients")),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_models_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", "version", name=op.f("uq_models_name_version")),
    )
    op.create_table(
        "manifest_fragments",
        sa.Column("manifest", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("fragment", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(["fragment"], ["fragments.id"], name=op.f("fk_manifest_fragments_fragment_fragments")),
        sa.ForeignKeyConstraint(["manifest"], ["manifests.id"], name=op.f("fk_manifest_fragments_manifest_manifests")),
        sa.PrimaryKeyConstraint("manifest", "position", name=op.f("pk_manifest_fragments")),
    )
    op.create_index(op.f("ix_manifest_fragments_fragment"), "manifest_fragments", ["fragment"], unique=False)
    op.create_table(
        "memos",
        sa.Column("memo_key", sa.String(length=64), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("fragment", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("column_name", sa.Text(), nullable=True),
        sa.Column("checksum", sa.String(length=64), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("secs", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("requested_at", sa.Float(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("queued_by", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cause_code", sa.String(length=32), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("evicted_at", sa.Float(), nullable=True),
        sa.Column("evicted_why", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["components.fingerprint"], name=op.f("fk_memos_fingerprint_components")
        ),
        sa.ForeignKeyConstraint(["fragment"], ["fragments.id"], name=op.f("fk_memos_fragment_fragments")),
        sa.ForeignKeyConstraint(["queued_by"], ["models.id"], name=op.f("fk_memos_queued_by_models")),
        sa.PrimaryKeyConstraint("memo_key", name=op.f("pk_memos")),
    )
    op.create_index(op.f("ix_memos_file"), "memos", ["file"], unique=False)
    op.create_index(op.f("ix_memos_fingerprint"), "memos", ["fingerprint"], unique=False)
    op.create_index(op.f("ix_memos_state"), "memos", ["state"], unique=False)
    op.create_table(
        "model_inputs",
        sa.Column("model", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["components.fingerprint"], name=op.f("fk_model_inputs_fingerprint_components")
        ),
        sa.ForeignKeyConstraint(["model"], ["models.id"], name=op.f("fk_model_inputs_model_models")),
        sa.PrimaryKeyConstraint("model", "position", name=op.f("pk_model_inputs")),
    )
    op.create_index(op.f("ix_model_inputs_fingerprint"), "model_inputs", ["fingerprint"], unique=False)
    op.create_table(
        "submissions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("model", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("unchanged", sa.Boolean(), nullable=False),
        sa.Column("hits", sa.BigInteger(), nullable=False),
        sa.Column("shared", sa.BigInteger(), nullable=False),
        sa.Column("queued", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["model"], ["models.id"], name=op.f("fk_submissions_model_models")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_submissions")),
    )
    op.create_index(op.f("ix_submissions_model"), "submissions", ["model"], unique=False)
    op.create_table(
        "tasks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("memo_key", sa.String(length=64), nullable=False),
        sa.Column("table_name", sa.String(length=255), nullable=False),
        sa.Column("partition", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.Float(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["memo_key"], ["memos.memo_key"], name=op.f("fk_tasks_memo_key_memos")),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_tasks_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("memo_key", name=op.f("uq_tasks_memo_key")),
    )
    op.create_index("ix_tasks_state_table_name_partition", "tasks", ["state", "table_name", "partition"], unique=False)
    op.create_table(
        "waits",
        sa.Column("memo_key", sa.String(length=64), nullable=False),
        sa.Column("model", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(["memo_key"], ["memos.memo_key"], name=op.f("fk_waits_memo_key_memos")),
        sa.ForeignKeyConstraint(["model"], ["models.id"], name=op.f("fk_waits_model_models")),
        sa.PrimaryKeyConstraint("memo_key", "model", name=op.f("pk_waits")),
    )
    op.create_index(op.f("ix_waits_model"), "waits", ["model"], unique=False)
