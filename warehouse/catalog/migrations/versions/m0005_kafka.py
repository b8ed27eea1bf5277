"""Tables that a Kafka topic feeds: the topic, and the offsets of each version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "r0007"
down_revision = "r0006"


def upgrade() -> None:
    """Create the two tables."""
    op.create_table(
        "kafka_topics",
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("brokers", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.Text(), nullable=False),
        sa.Column("start", _string(8), nullable=False),
        sa.Column("schema", sa.JSON(), nullable=True),
        sa.CheckConstraint("start IN ('earliest', 'latest')", name=op.f("ck_kafka_topics_start")),
        sa.PrimaryKeyConstraint("table_name", name=op.f("pk_kafka_topics")),
    )
    op.create_table(
        "kafka_offsets",
        sa.Column("table_name", _string(255), nullable=False),
        sa.Column("table_version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("first_offset", sa.BigInteger(), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "table_version >= 0 AND partition >= 0 AND first_offset >= 0", name=op.f("ck_kafka_offsets_not_negative")
        ),
        sa.CheckConstraint("next_offset >= first_offset", name=op.f("ck_kafka_offsets_order")),
        sa.PrimaryKeyConstraint("table_name", "table_version", "partition", name=op.f("pk_kafka_offsets")),
    )


def _string(length: int) -> TypeEngine[str]:
    return sa.String(length=length).with_variant(sa.String(length=length, collation="C"), "postgresql")
