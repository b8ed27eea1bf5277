"""Memo files as rows of their own, what they cover, the subgraphs of components, and pins.

Memos are derived data, and their files have another format from here on: they are queued again, and ``headrace gc``
removes the files that nothing names any more.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from transforms.graph import component_from_document
from transforms.subgraphs import subgraphs

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Drop memos and tasks, create them anew with what stands beside them, and index the components that are known."""
    for table in ("waits", "tasks", "memos"):
        op.drop_table(table)
    op.add_column("models", sa.Column("policy", sa.String(length=16), server_default="all", nullable=False))
    op.execute("UPDATE models SET table_version = -1")

    op.create_table(
        "component_subgraphs",
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("subgraph", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["components.fingerprint"], name=op.f("fk_component_subgraphs_fingerprint_components")
        ),
        sa.PrimaryKeyConstraint("fingerprint", "subgraph", name=op.f("pk_component_subgraphs")),
    )
    op.create_index(op.f("ix_component_subgraphs_subgraph"), "component_subgraphs", ["subgraph"], unique=False)
    op.create_table(
        "memo_files",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("checksum", sa.String(length=64), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("live_bytes", sa.BigInteger(), nullable=False),
        sa.Column("written_at", sa.Float(), nullable=False),
        sa.Column("condemned_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_memo_files")),
        sa.UniqueConstraint("path", name=op.f("uq_memo_files_path")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_memo_files_condemned_at"), "memo_files", ["condemned_at"], unique=False)
    op.create_table(
        "column_sets",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_column_sets")),
        sa.UniqueConstraint("digest", name=op.f("uq_column_sets_digest")),
    )
    op.create_table(
        "set_members",
        sa.Column("column_set", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["column_set"], ["column_sets.id"], name=op.f("fk_set_members_column_set_column_sets")),
        sa.PrimaryKeyConstraint("column_set", "fingerprint", name=op.f("pk_set_members")),
    )
    op.create_index(op.f("ix_set_members_fingerprint"), "set_members", ["fingerprint"], unique=False)
    op.create_table(
        "coverage",
        sa.Column("file", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("content", sa.String(length=64), nullable=False),
        sa.Column("column_set", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(["column_set"], ["column_sets.id"], name=op.f("fk_coverage_column_set_column_sets")),
        sa.ForeignKeyConstraint(["file"], ["memo_files.id"], name=op.f("fk_coverage_file_memo_files")),
        sa.PrimaryKeyConstraint("file", "content", name=op.f("pk_coverage")),
    )
    op.create_index("ix_coverage_column_set_content", "coverage", ["column_set", "content"], unique=False)
    op.create_table(
        "memos",
        sa.Column("memo_key", sa.String(length=64), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("fragment", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("file", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("secs", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("queued_by", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cause_code", sa.String(length=32), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("evicted_at", sa.Float(), nullable=True),
        sa.Column("evicted_why", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["file"], ["memo_files.id"], name=op.f("fk_memos_file_memo_files")),
        sa.ForeignKeyConstraint(
            ["fingerprint"], ["components.fingerprint"], name=op.f("fk_memos_fingerprint_components")
        ),
        sa.ForeignKeyConstraint(["fragment"], ["fragments.id"], name=op.f("fk_memos_fragment_fragments")),
        sa.ForeignKeyConstraint(["queued_by"], ["models.id"], name=op.f("fk_memos_queued_by_models")),
        sa.PrimaryKeyConstraint("memo_key", name=op.f("pk_memos")),
    )
    op.create_index(op.f("ix_memos_file"), "memos", ["file"], unique=False)
    op.create_index(op.f("ix_memos_fingerprint"), "memos", ["fingerprint"], unique=False)
    op.create_index(op.f("ix_memos_fragment"), "memos", ["fragment"], unique=False)
    op.create_index(
        "ix_memos_unready",
        "memos",
        ["state"],
        unique=False,
        sqlite_where=sa.text("state <> 'READY'"),
        postgresql_where=sa.text("state <> 'READY'"),
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("memo_key", sa.String(length=64), nullable=False),
        sa.Column("table_name", sa.String(length=255), nullable=False),
        sa.Column("partition", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("lease", sa.String(length=32), nullable=True),
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
    op.create_index(op.f("ix_tasks_lease"), "tasks", ["lease"], unique=False)
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
    op.create_table(
        "pins",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("model", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("table_name", sa.String(length=255), nullable=False),
        sa.Column("start_at", sa.Float(), nullable=True),
        sa.Column("end_at", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["model"], ["models.id"], name=op.f("fk_pins_model_models")),
        sa.ForeignKeyConstraint(["table_name"], ["tables.name"], name=op.f("fk_pins_table_name_tables")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pins")),
    )
    op.create_index(op.f("ix_pins_expires_at"), "pins", ["expires_at"], unique=False)
    op.create_table(
        "pin_components",
        sa.Column("pin", sa.String(length=32), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["pin"], ["pins.id"], name=op.f("fk_pin_components_pin_pins")),
        sa.PrimaryKeyConstraint("pin", "fingerprint", name=op.f("pk_pin_components")),
    )
    op.create_index(op.f("ix_pin_components_fingerprint"), "pin_components", ["fingerprint"], unique=False)
    _index_components()


def _index_components() -> None:
    components = sa.table("components", sa.column("fingerprint"), sa.column("document", sa.JSON()))
    index = sa.table("component_subgraphs", sa.column("fingerprint"), sa.column("subgraph"))
    connection = op.get_bind()
    for fingerprint, document in connection.execute(sa.select(components.c.fingerprint, components.c.document)).all():
        nodes = subgraphs(component_from_document(document))
        rows = [{"fingerprint": fingerprint, "subgraph": node.identity} for node in nodes]
        if rows:
            connection.execute(sa.insert(index), rows)
