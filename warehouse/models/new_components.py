"""Writes components that are new to the catalog, with all that a search needs of them."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, select

from transforms.comparison.pattern_facts import node_facts
from transforms.graphs.graph import Node, component_document, operator_versions, raw_columns, shape_identity
from transforms.graphs.subgraphs import subgraphs
from transforms.render import expression_text
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, insert_absent, one_of


def write_components(connection: Connection, components: Mapping[str, Node], now: float) -> None:
    """Insert components that are new, by fingerprint."""
    of = schema.components.c.fingerprint
    known: set[str] = set()
    for chunk in chunks(sorted(components)):
        known.update(connection.execute(select(of).where(one_of(connection, of, chunk))).scalars())
    new = {fingerprint: root for fingerprint, root in components.items() if fingerprint not in known}
    insert_absent(connection, schema.components, (
        {"fingerprint": fingerprint, "shape": shape_identity(root), "expression": expression_text(root),
         "document": component_document(root), "created_at": now}
        for fingerprint, root in new.items()
    ))  # fmt: skip
    insert_absent(connection, schema.component_columns, (
        {"fingerprint": fingerprint, "column_name": name}
        for fingerprint, root in new.items()
        for name in sorted({column.name for column in raw_columns(root)})
    ))  # fmt: skip
    insert_absent(connection, schema.component_operators, (
        {"fingerprint": fingerprint, "operator": operator, "version": version}
        for fingerprint, root in new.items()
        for operator, version in operator_versions(root).items()
    ))  # fmt: skip
    parts = {fingerprint: subgraphs(root) for fingerprint, root in new.items()}
    insert_absent(connection, schema.component_subgraphs, (
        {"fingerprint": fingerprint, "subgraph": node.identity} for fingerprint, nodes in parts.items() for node in nodes
    ))  # fmt: skip
    made = {node.identity: node for nodes in parts.values() for node in nodes}
    insert_absent(connection, schema.subgraph_facts, (
        {"fact": fact, "subgraph": identity} for identity, node in made.items() for fact in sorted(node_facts(node))
    ))  # fmt: skip
