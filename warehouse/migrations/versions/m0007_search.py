"""Indexes that a search reads alone, without the rows: by column, operator, subgraph, model and age, and sums over memos."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"

#: table, the column that was indexed alone (if one was), the columns of the index that takes its place, its name
_INDEXES = (
    ("components", None, ("created_at", "fingerprint"), "ix_components_created_at_fingerprint"),
    ("component_columns", "column_name", ("column_name", "fingerprint"),
     "ix_component_columns_column_name_fingerprint"),
    ("component_operators", "operator", ("operator", "version", "fingerprint"),
     "ix_component_operators_operator_version_fingerprint"),
    ("component_subgraphs", "subgraph", ("subgraph", "fingerprint"), "ix_component_subgraphs_subgraph_fingerprint"),
    ("model_inputs", "fingerprint", ("fingerprint", "model"), "ix_model_inputs_fingerprint_model"),
    ("memos", "fingerprint", ("fingerprint", "state", "size_bytes", "secs", "rows"), "ix_memos_fingerprint_state"),
    ("memos", "file", ("file", "state", "size_bytes"), "ix_memos_file_state"),
)  # fmt: skip


def upgrade() -> None:
    """Put each of them in the place of the index of its first column alone."""
    for table, before, columns, name in _INDEXES:
        op.create_index(op.f(name), table, list(columns), unique=False)
        if before is not None:
            op.drop_index(op.f(f"ix_{table}_{before}"), table_name=table)
