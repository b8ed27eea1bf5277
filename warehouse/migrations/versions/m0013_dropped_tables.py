"""Tables that were dropped keep their row, so that their history goes on when the name is used again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """When a table was dropped; null for one that is there."""
    op.add_column("tables", sa.Column("dropped_at", sa.Float()))
