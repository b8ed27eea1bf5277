"""Alembic's entry: runs the migrations on the connection of :func:`warehouse.catalog.migrate.migrate`."""

from __future__ import annotations

from alembic import context

from warehouse.catalog.schema import metadata


def run() -> None:
    """Run the migrations inside the caller's transaction."""
    connection = context.config.attributes["connection"]
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    context.run_migrations()


run()
