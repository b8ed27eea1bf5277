"""The facts of subgraphs, by which patterns are searched."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

from transforms.comparison.pattern_facts import node_facts
from transforms.errors import DataError
from transforms.graphs.component_reader import ComponentReader
from transforms.graphs.subgraphs import subgraphs

revision = "r0011"
down_revision = "r0010"

_LOG = logging.getLogger(__name__)
_COMPONENTS_AT_A_TIME = 5_000
_KEPT_IDENTITIES = 500_000

_components = sa.table("components", sa.column("fingerprint", sa.String), sa.column("document", sa.JSON))


def upgrade() -> None:
    """Add the table, and the facts of all components."""
    op.create_table(
        "subgraph_facts",
        sa.Column("fact", _string(64), nullable=False),
        sa.Column("subgraph", _string(64), nullable=False),
        sa.PrimaryKeyConstraint("fact", "subgraph", name=op.f("pk_subgraph_facts")),
    )
    connection = op.get_bind()
    absent = "INSERT INTO subgraph_facts (fact, subgraph) VALUES (:fact, :subgraph) ON CONFLICT DO NOTHING"
    reader, known = ComponentReader(), set[str]()
    for documents in _documents(connection):
        rows = []
        for fingerprint, document in documents:
            try:
                nodes = subgraphs(reader.read(document))
            except DataError as error:  # no search could read it before
                _LOG.warning("component %s cannot be read, so no pattern finds it: %s", fingerprint[:12], error)
                continue
            new = [node for node in nodes if node.identity not in known]
            known.update(node.identity for node in new)
            rows += [{"fact": fact, "subgraph": node.identity} for node in new for fact in sorted(node_facts(node))]
        if rows:
            connection.execute(sa.text(absent), rows)
        if len(known) > _KEPT_IDENTITIES:
            known.clear()


def _documents(connection: sa.Connection) -> Iterator[list[tuple[str, object]]]:
    of = _components.c
    last = ""
    while True:
        page = sa.select(of.fingerprint, of.document).where(of.fingerprint > last).order_by(of.fingerprint)
        found = [(row.fingerprint, row.document) for row in connection.execute(page.limit(_COMPONENTS_AT_A_TIME))]
        if not found:
            return
        yield found
        last = found[-1][0]


def _string(length: int) -> TypeEngine[str]:
    return sa.String(length=length).with_variant(sa.String(length=length, collation="C"), "postgresql")
